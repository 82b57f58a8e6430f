"""Runs a check: gathers facts, plans, starts children, judges, diagnoses, and makes the report."""
