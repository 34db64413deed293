"""Cases of attention."""
