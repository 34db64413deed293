"""Serve convolutions of each channel with its own filters."""
