"""Instruments of TensorFlow and of Keras on JAX."""
