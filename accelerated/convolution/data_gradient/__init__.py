"""Compute gradients of convolutions with respect to the input (5.2.8)."""
