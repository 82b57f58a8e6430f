"""Each NVIDIA library that TensorFlow uses computes something on each GPU, and the CPU says whether it is right."""
