"""The host: judged from facts, without TensorFlow."""
