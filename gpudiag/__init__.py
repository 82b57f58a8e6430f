"""GPU configuration diagnostics and test harness for TensorFlow."""

__version__ = "0.1.0"
