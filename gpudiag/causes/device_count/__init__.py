"""The driver starts and does not count its GPUs."""
