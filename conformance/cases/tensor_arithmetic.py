"""Cases of the tensor arithmetic family."""
