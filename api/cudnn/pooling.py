"""Pooling descriptors and calls."""
