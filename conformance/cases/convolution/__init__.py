"""Cases of convolution."""
