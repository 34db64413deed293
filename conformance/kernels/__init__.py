"""Compile kernels before anything calls them: ``dualdnn build``, its wheels, and ``dualdnn.warm_up``."""
