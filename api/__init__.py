"""Implement the documented APIs."""

__version__ = "0.2.0"
