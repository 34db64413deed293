"""Implements batch normalization of columns: NHWC tensors, and activations with separate statistics."""
