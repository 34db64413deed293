"""Implicit GEMM: products whose operands are read from the tensors as they lie, on SIMT, FP32, MMA and TMA kernels."""
