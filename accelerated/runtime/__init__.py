"""Provides devices, compilers and the kernel cache, which run kernels on a GPU or emulated on the CPU."""
