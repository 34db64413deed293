"""Implements gradients of max pooling with static windows."""
