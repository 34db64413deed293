"""Cases of the transform family."""
