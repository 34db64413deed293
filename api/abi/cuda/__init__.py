"""The sources of a CUDA driver and runtime on memory of the host; ``api.abi.cuda_runtime`` compiles them."""
