"""Activation, forward and backward."""
