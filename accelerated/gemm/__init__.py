"""Multiply matrices for several families."""
