"""Holds cases of pooling."""
