"""Serve convolutions of each channel with filters of its own."""
