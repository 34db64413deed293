"""Multiply matrices whose operands are read in place from the tensors, with SIMT, FP32, MMA and TMA kernels."""
