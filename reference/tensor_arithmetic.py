"""Tensor arithmetic."""
