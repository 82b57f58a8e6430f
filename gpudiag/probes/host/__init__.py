"""Checks of the host, judged from facts without TensorFlow."""
