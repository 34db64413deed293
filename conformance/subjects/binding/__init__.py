"""Call the documented C functions of a shared library from Python through ctypes."""
