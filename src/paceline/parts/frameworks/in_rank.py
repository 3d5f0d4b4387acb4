"""Nothing is patched here: a rank of TensorFlow or JAX has the instruments beside this file."""
