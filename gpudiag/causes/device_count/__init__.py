"""The driver starts but does not count its GPUs."""
