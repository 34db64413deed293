"""Implements local response, divisive and batch normalization."""
