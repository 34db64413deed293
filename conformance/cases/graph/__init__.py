"""Cases of graph."""
