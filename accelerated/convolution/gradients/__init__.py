"""Gradients of convolutions: with respect to the input (5.2.8), the bias (6.2.1) and the filter (6.2.2)."""
