"""A GPU on which no context can be made."""
