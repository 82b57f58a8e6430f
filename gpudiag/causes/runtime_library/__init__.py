"""The CUDA runtime library, which TensorFlow opens first."""
