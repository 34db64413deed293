"""Fakes PyCUDA on the fake CUDA driver."""

VERSION_TEXT = "of a test"
