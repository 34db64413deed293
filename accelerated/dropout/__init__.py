"""Implements dropout and the states of its random numbers."""
