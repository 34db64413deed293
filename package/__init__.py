"""The executable edition of the cuDNN 8.0.3 API Reference: ``dualdnn.api``, ``reference``, ``accelerated``, ``conformance``."""

__version__ = "0.1.0"
