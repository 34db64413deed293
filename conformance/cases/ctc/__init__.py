"""Holds cases of the CTC loss."""
