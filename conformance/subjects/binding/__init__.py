"""The documented C functions of a shared library, called through ctypes from Python."""
