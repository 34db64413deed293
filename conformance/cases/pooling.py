"""Cases of the pooling family."""
