"""Implement the calls of the normalizations."""
