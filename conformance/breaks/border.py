"""Make calls of cases under one break, whatever backend computes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, IntEnum
from functools import cache, partial, wraps
from typing import Any

from dualdnn.api import miopen
from dualdnn.api.descriptors import BackendDescriptor, Descriptor
from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.miopen.enumerations import ENUMERATIONS as MIOPEN_ENUMERATIONS
from dualdnn.api.miopen.objects import Descriptor as MiopenDescriptor
from dualdnn.api.miopen.status import MiopenError
from dualdnn.api.operations import TensorSpec
from dualdnn.api.status import CudnnError

from .rules import NUMBERED, OF_MEMORY, Break

Call = Callable[..., Any]
REFUSALS = (CudnnError, MiopenError)


@cache
def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Return the parameters that a caller of a function of either document passes."""
    return (functions().get(name) or miopen_functions()[name]).arguments


def is_filled(name: str, at: int) -> bool:
    """Return whether a function fills the object that is this argument, so that its prior contents do not matter."""
    known = parameters_of(name) if name in functions() else ()
    first = next((i for i, p in enumerate(known) if p.base_type != "cudnnHandle_t"), 0)
    sets = name.startswith(("cudnnSet", "cudnnRNNSet")) and name != "cudnnSetPersistentRNNPlan"  # It reads the network.
    return at < len(known) and (known[at].direction == "out" or (at == first and sets))


def told(value: Any) -> str:
    """Return what an argument says as text, with enumerators by name."""
    if isinstance(value, BackendDescriptor):
        return f"{value!r} {value.kind.name if value.kind is not None else ''}"
    if isinstance(value, Descriptor | MiopenDescriptor):
        return f"{value!r} {vars(value)}"
    if isinstance(value, Enum):
        return value.name
    return repr(value) if isinstance(value, tuple | list | int | float) else ""


def words_of(name: str, values: Sequence[Any]) -> str:
    """Return what the arguments of a call say as text; ranks and data types follow the name of their parameter."""
    known = parameters_of(name) if name in functions() or name in miopen_functions() else ()
    facts = (
        f"{parameter.name}_{fact}"
        for parameter, value in zip(known, values, strict=False)
        for fact in _facts(getattr(value, "spec", None))
    )
    return " ".join((*map(told, values), *facts))


def _facts(spec: Any) -> Iterator[str]:
    """Yield the rank of a tensor, and the data type of a tensor, filter or convolution."""
    if isinstance(spec, TensorSpec):
        yield f"{len(spec.dims)}D"
    for field in ("data_type", "compute_type"):
        if isinstance(kind := getattr(spec, field, None), Enum):
            yield kind.name


def _enumerator(parameter: Parameter, value: Any) -> Any:
    """Return an argument as an enumerator if it is the number of one."""
    kind = ENUMERATIONS.get(parameter.base_type) or MIOPEN_ENUMERATIONS.get(parameter.base_type)
    if kind is None or isinstance(value, Enum) or not isinstance(value, int):
        return value
    return kind(value) if value in set(map(int, kind)) else value


class Border:
    """Make calls under the break ``broken``; ``applied`` says whether it changed any call."""

    def __init__(self, hows: Mapping[str, Call]) -> None:
        """Set the ways to break calls: name -> function of (border, break, name of the function, function,
        arguments).
        """
        self.hows = hows
        self.broken: Break | None = None
        self.applied = False
        self.twins: dict[int, tuple[Any, Any]] = {}  # descriptors, each with the one that computing calls see instead
        self.first: dict[str, Any] = {}  # function -> argument of its first call that later ones get
        self.made: list[Any] = []  # memory that replaces the caller's
        self.sets: set[str] = set()  # what setters have set, as the getter and its objects
        self.calls = 0
        self.last = ""  # name of the function that was called last
        self.meant = True  # whether that call named the enumerators of a break of memory
        self.called: set[str] = set()  # functions that were called under the break
        self.refuses = False  # whether the subject refused what the break gave it
        self.said: set[str] | None = (
            None  # names of called functions and words of their arguments, while these are recorded
        )

    @property
    def active(self) -> bool:
        """Return whether calls must come through here."""
        return self.broken is not None or self.said is not None

    def begin(self, broken: Break) -> None:
        """Break the following calls."""
        self.broken, self.applied, self.calls = broken, False, 0
        self.called, self.refuses, self.sets = set(), False, set()
        self.first = {}
        if broken.how == NUMBERED:
            self._number_otherwise(broken.type, broken.point)
        for name in miopen_functions() if broken.function.startswith("miopen") or not broken.function else ():
            if hasattr(miopen, name):
                self._patch(name, getattr(miopen, name))

    def _number_otherwise(self, name: str, which: str) -> None:
        """Give an enumerator of an enumeration, or else the last one, another number."""
        kind = ENUMERATIONS[name]
        numbers = {member.name: int(member) for member in kind}
        numbers[which or list(kind)[-1].name] = max(numbers.values()) + 1
        made: Any = IntEnum  # This class has no definition in source.
        ENUMERATIONS[name] = made(name, numbers)
        self.made.append(_Undo(lambda: ENUMERATIONS.__setitem__(name, kind)))
        self.applied = True

    def _patch(self, name: str, call: Call) -> None:
        setattr(miopen, name, wraps(call)(lambda *args, **kwargs: self.call(name, call, *args, **kwargs)))
        self.made.append(_Undo(lambda: setattr(miopen, name, call)))

    def end(self) -> None:
        """Restore normal calls, and free the memory that replaced the caller's."""
        self.broken = None
        self.twins.clear()
        for made in reversed(self.made):
            with suppress(*REFUSALS, ValueError):
                made.free()
        self.made.clear()

    def call(self, name: str, function: Call, *args: Any, **kwargs: Any) -> Any:
        """Make one call, broken if the break applies to this function and these arguments."""
        broken, self.last = self.broken, name
        self.called.add(name)
        if "Set" in name:
            self.sets.add(_place(name.replace("Set", "Get"), args))
        if self.said is not None:
            self.said.add(name)
            known = parameters_of(name) if name in (*functions(), *miopen_functions()) else ()
            named = map(_enumerator, known, args) if len(known) == len(args) else args
            self.said.update(re.findall(r"\w+", words_of(name, (*named, *kwargs.values()))))
        if broken is not None and broken.how in OF_MEMORY and name in (*functions(), *miopen_functions()):
            self.meant = self.names(
                broken, name, [_enumerator(p, a) for p, a in zip(parameters_of(name), args, strict=False)]
            )
        if (
            broken is None
            or broken.how in (*OF_MEMORY, NUMBERED)
            or (name not in functions() and name not in miopen_functions())
        ):
            return function(*args, **kwargs)
        function = partial(function, **kwargs) if kwargs else function  # Keywords are not arguments of the document.
        values = [_enumerator(p, a) for p, a in zip(parameters_of(name), args, strict=False)]
        if len(values) != len(args) or len(values) != len(parameters_of(name)):
            return function(*args)
        elsewhere = broken.function not in ("", name) or not self.names(broken, name, values)
        if elsewhere and broken.how != "meaning":  # This way changes what other functions see.
            return function(*args)
        return self.hows[broken.how](self, broken, name, function, values)

    def is_set(self, name: str, values: list[Any]) -> bool:
        """Return whether the setter has set what a getter reads."""
        return _place(name, values) in self.sets

    def names(self, broken: Break, name: str, values: list[Any]) -> bool:
        """Return whether arguments name the enumerators that a break needs; of alternatives, one is enough."""
        if not broken.only:
            return True
        said = words_of(name, values)
        return all(re.search(rf"\b(?:{word})\b", said) for word in broken.only)


def _place(getter: str, values: Sequence[Any]) -> str:
    """Return the getter with the object and, where attributes have names, the attribute that it reads."""
    first = next((value for value in values if isinstance(value, Descriptor)), None)
    label = values[1] if getter.endswith("Attribute") else ""
    return f"{getter} {id(first)} {label}"


class _Undo:
    """Restore what a break replaced."""

    def __init__(self, free: Callable[[], None]) -> None:
        self.free = free
