"""Convolutions with every documented algorithm, Im2Col and reordered filters; gradients/ has their gradients."""
