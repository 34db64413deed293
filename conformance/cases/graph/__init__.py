"""Holds cases of operation graphs."""
