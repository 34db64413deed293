"""Cases of miopen."""
