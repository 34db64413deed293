"""Holds cases of the MIOpen porting guide."""
