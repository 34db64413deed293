"""Tensor arithmetic on the device."""
