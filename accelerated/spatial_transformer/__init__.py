"""The spatial transformer: grids of coordinates and sampling at them, forward and backward."""
