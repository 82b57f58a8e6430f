"""GPU memory that is not available to TensorFlow."""
