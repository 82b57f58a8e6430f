"""The GPU is used, and not as the user meant."""
