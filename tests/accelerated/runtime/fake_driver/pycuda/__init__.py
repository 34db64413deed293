"""Stands for PyCUDA on the driver without a device."""

VERSION_TEXT = "of a test"
