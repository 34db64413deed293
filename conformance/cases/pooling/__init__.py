"""Cases of pooling."""
