"""Filter descriptors."""
