"""Holds cases of recurrent networks."""
