"""Holds cases of convolution."""
