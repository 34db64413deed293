"""Serve fused operations (6.1.3.1)."""
