"""How much GPU memory TensorFlow takes, and when."""
