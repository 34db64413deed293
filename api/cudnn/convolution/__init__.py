"""Implement the calls of convolutions."""
