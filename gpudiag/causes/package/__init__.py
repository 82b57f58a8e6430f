"""TensorFlow itself: none, another module of its name, or one that cannot be imported."""
