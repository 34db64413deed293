"""Transform descriptors and calls."""
