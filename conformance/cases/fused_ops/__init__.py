"""Holds cases of fused ops."""
