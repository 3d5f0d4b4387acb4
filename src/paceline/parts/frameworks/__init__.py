"""TensorFlow and JAX: their ranks find each other, and a parameter server of TensorFlow runs beside them.

For whoever trains with TensorFlow or JAX in place of torch. State: frozen, preview.
"""
