"""Hold the sources of a CUDA driver and runtime on host memory; ``api.abi.cuda_runtime`` compiles them."""
