"""Implements the spatial transformer: coordinate grids and sampling, forward and backward."""
