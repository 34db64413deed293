"""Calls of the tensor arithmetic family."""
