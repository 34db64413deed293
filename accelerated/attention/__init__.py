"""Multi-head attention."""
