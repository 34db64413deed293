"""Implements softmax, forward and backward."""
