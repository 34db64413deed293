"""Devices, compilers and the kernel cache: what runs kernels, on a GPU or emulated on the CPU."""
