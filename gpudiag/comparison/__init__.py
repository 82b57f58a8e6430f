"""What changed between two reports: the facts of the machine, and what the probes and the diagnosis found."""
