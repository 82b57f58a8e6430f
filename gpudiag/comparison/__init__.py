"""The changes between two reports: in the facts of the machine, in the probes and in the diagnosis."""
