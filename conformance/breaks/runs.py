"""Runs one case again and again, under faults and breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dualdnn.api.descriptors import Descriptor
from dualdnn.api.miopen.objects import MiopenHandle


class Case:
    """A case and what it is given; descriptors, and what a handle of MIOpen remembers, are before each run as they were before the first."""

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        self.function, self.arguments = function, arguments
        handles = [value for value in arguments.values() if isinstance(value, MiopenHandle)]
        self.remembered = [(handle, _remembered(handle)) for handle in handles]

    def __call__(self) -> None:
        """Run the case."""
        for handle, remembered in self.remembered:
            vars(handle).update({name: copy.copy(value) for name, value in remembered.items()})
        given = {n: copy.copy(v) if isinstance(v, Descriptor) else v for n, v in self.arguments.items()}
        self.function(**given)

    def fails(self) -> bool:
        """Return whether the case fails; a case that skips itself does not."""
        try:
            self()
        except (KeyboardInterrupt, SystemExit):
            raise
        except pytest.skip.Exception:
            return False
        except BaseException:  # pytest's failures are no Exception
            return True
        return False


def _remembered(handle: MiopenHandle) -> dict[str, Any]:
    return {name: copy.copy(value) for name, value in vars(handle).items() if isinstance(value, dict | set)}
