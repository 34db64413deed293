"""Pooling on the device."""
