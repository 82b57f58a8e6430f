"""Whether TensorFlow finds the GPUs of the machine, and the reason in its log if it does not."""
