"""Implement fused operations (6.1.3.1): parameter packs, plans, their execution."""
