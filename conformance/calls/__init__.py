"""From operations to the documented calls of a subject."""

from importlib import import_module

from dualdnn.api.operations import FAMILIES

from .caller import CALLS, Caller, calls

for family in FAMILIES:  # registers the family's calls
    import_module(f"{__name__}.{family}")

__all__ = ["CALLS", "Caller", "calls"]
