"""Each NVIDIA library that TensorFlow uses computes on each GPU, and the result is compared with the CPU's."""
