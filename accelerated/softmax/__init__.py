"""Softmax, forward and backward."""
