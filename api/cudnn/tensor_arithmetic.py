"""Tensor arithmetic descriptors and calls."""
