"""Calls of the softmax family."""
