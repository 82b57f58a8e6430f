"""Where operations run, and whether TensorFlow reports it if that is not the requested device."""
