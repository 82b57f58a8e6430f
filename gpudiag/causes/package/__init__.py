"""TensorFlow itself is missing, hidden by another module, or cannot be imported."""
