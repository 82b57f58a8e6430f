"""Which GPUs TensorFlow is allowed to see, and under which number."""
