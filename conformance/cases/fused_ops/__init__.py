"""Cases of fused ops."""
