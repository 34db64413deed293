"""Dropout and the states of its random numbers."""
