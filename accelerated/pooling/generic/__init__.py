"""Solvers of any window, stride and layout."""
