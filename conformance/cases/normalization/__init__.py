"""Cases of normalization."""
