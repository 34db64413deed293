"""Calls of the pooling family."""
