"""Several devices on one task: placed by hand, by a strategy, and the reductions between them."""
