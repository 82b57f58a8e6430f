"""The other libraries of CUDA."""
