"""Emulates a device: runs the CUDA kernels on the CPU and finds their mistakes."""
