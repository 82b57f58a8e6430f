"""Memory of a GPU that is not there for TensorFlow."""
