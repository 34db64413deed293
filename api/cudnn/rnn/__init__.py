"""Calls of recurrent networks."""

from . import data

__all__ = ["data"]
