"""Implements pooling with any window, stride and layout."""
