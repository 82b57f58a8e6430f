"""NVML, without which TensorFlow 2.21 lists no GPU."""
