"""Several devices at the same work: by hand, by a strategy, and the reductions between them."""
