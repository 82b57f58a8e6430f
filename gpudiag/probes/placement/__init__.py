"""Where operations run, and whether TensorFlow says so if it is not the device that was asked for."""
