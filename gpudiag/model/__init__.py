"""The records of a run, pure: facts, rows, diagnosis, report, and its JSON."""
