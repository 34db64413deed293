"""Implements pooling, forward and backward."""
