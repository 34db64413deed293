"""Calls of the reduce tensor family."""
