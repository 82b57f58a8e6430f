"""The probes, one scenario a file; a folder is an area. Adding a probe touches exactly one file."""

AREAS = ("host", "discovery", "visibility", "placement", "memory", "logical", "libraries", "distribution", "load")
"""The areas in the order in which a check reports them."""
