"""Holds cases of attention."""
