"""Serve multi-head attention."""
