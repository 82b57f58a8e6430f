"""What TensorFlow, CUDA and the packages around them do, as tables."""
