"""Implements batch normalization of NHWC tensors, and with separate statistics for each activation."""
