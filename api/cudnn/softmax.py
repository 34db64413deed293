"""Softmax descriptors and calls."""
