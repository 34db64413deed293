"""Reduce tensor descriptors and calls."""
