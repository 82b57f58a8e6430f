"""A build of TensorFlow that has no CUDA."""
