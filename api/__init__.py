"""Implement the documented APIs."""

__version__ = "0.1.0"
