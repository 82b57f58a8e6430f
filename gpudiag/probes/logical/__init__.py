"""Physical devices split into logical ones."""
