"""Reduce tensor."""
