"""Holds cases of miopen."""
