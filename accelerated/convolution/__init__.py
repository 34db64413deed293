"""Convolutions with every documented algorithm, their gradients, Im2Col and reordered filters: a folder for each kind
of solver."""
