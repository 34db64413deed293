"""Pooling, forward and backward."""
