"""Names of a package that are imported when somebody asks for one: a program pays for the calls that it makes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports the submodule that has the name and keeps what it found.

    homes: submodule -> the names that it has. Errors: AttributeError for other names.
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
    """Import every submodule, for whoever needs all that they register."""
    for module in homes:
        import_module(f"{package}.{module}")
