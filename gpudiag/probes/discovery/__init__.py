"""Whether TensorFlow finds the GPUs that are there, and what it says if not."""
