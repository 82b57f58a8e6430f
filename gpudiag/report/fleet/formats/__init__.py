"""The formats of a fleet's report."""
