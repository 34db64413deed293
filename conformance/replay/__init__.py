"""Repeat calls that were saved, recorded or logged (``dualdnn replay``)."""
