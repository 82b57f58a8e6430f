"""The GPU is used, but not as the user meant."""
