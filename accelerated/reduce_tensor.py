"""Reduce tensor on the device."""
