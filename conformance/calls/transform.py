"""Calls of the transform family."""
