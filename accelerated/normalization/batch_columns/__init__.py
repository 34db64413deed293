"""Batch normalization of columns: NHWC tensors, and activations that have statistics of their own."""
