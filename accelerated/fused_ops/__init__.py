"""Fused operations (6.1.3.1)."""
