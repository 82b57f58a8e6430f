"""Shared by causes: each module is about one subject."""
