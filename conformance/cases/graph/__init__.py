"""Holds cases of graph."""
