"""Import submodules of a package on first use of their names, so that a program loads only what it calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package. It imports the submodule that defines a name and caches the result.

    homes: maps a submodule to its names. Errors: AttributeError for other names.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def load(package: str, homes: Iterable[str]) -> None:
    """Import every submodule, for callers that need everything the submodules register."""
    for module in homes:
        import_module(f"{package}.{module}")
