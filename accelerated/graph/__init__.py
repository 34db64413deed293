"""Serve operation graphs (chapter 9)."""
