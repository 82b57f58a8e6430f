"""Where operations run, and whether anybody is told when that is not where they were asked to."""
