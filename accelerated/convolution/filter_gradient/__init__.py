"""Compute gradients of convolutions with respect to the filter (6.2.2)."""
