"""Gradients of maxima with static windows."""
