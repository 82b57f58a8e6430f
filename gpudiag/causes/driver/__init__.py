"""``cuInit`` fails, or the driver shows no GPU."""
