"""Implement the calls of recurrent networks."""
