"""Run one case repeatedly, under faults and breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from dualdnn.api.descriptors import BackendDescriptor, Descriptor
from dualdnn.api.document import functions
from dualdnn.api.handle import Handle
from dualdnn.api.miopen.objects import MiopenHandle

from .border import Border

KEPT = Descriptor, MiopenHandle


class Case:
    """Hold a case and its arguments. Before each run, objects from fixtures are restored.

    held: the values of all fixtures. border: breaks the calls, including those that made these objects.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], held: Iterable[Any], border: Border
    ) -> None:
        self.function, self.arguments, self.border = function, arguments, border
        self.remembered = [(value, _remembered(value)) for value in held if isinstance(value, KEPT)]

    def __call__(self) -> None:
        """Run the case."""
        for value, remembered in self.remembered:
            vars(value).clear()
            vars(value).update({name: _copied(part) for name, part in remembered.items()})
            self._made(value)
        self.function(**{name: self._made(value) for name, value in self.arguments.items()})

    def _made(self, value: Any) -> Any:
        """Return an object as its creating call would make it, if calls are broken."""
        creator = creator_of(value)
        return self.border.call(creator, lambda: value) if creator and self.border.active else value

    def fails(self) -> bool:
        """Return whether the case fails; a case that skips itself does not."""
        try:
            self()
        except (KeyboardInterrupt, SystemExit):
            raise
        except pytest.skip.Exception:
            return False
        except BaseException:  # pytest's failures are not subclasses of Exception.
            return True
        return False


def creator_of(value: Any) -> str:
    """Return the function that creates such an object, or an empty text."""
    if isinstance(value, Handle | MiopenHandle):
        return "cudnnCreate" if isinstance(value, Handle) else "miopenCreate"
    if not isinstance(value, Descriptor) or isinstance(value, BackendDescriptor):
        return ""
    name = f"cudnnCreate{value.type_name.removeprefix('cudnn').removesuffix('_t')}"
    return name if name in functions() else ""


def _remembered(value: Any) -> dict[str, Any]:
    return {name: _copied(part) for name, part in vars(value).items()}


def _copied(part: Any) -> Any:
    return copy.copy(part) if isinstance(part, dict | set) else part
