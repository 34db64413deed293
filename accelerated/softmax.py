"""Softmax on the device."""
