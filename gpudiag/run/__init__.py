"""What a run does: it gathers facts, plans, starts children, judges, diagnoses, and makes the report."""
