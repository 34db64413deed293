"""Provides the building blocks of kernels: element types, index geometry, TMA, mma, clusters, dependent launch,
reductions."""
