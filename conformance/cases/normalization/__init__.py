"""Holds cases of normalization."""
