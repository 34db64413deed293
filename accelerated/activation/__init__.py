"""Implements activations, forward and backward."""
