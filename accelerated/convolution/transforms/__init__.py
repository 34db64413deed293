"""Serve convolutions as products of transformed tiles: Fourier and Winograd."""
