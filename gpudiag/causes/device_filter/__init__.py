"""GPUs that TensorFlow leaves out."""
