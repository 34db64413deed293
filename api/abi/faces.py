"""Define the faces of the C library: the release whose name, numbers and calls a program links to. All faces run the
same functions.

Face 8 has the document's own numbers. The files ``document/release_8.json`` and ``document/release_9.json`` hold what
each release has in addition, each entry with its source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from itertools import compress
from typing import Any

from .. import cudnn, enumerations
from ..document import VERSION, Function, functions
from ..enumerations import cudnnStatus_t


@dataclass(frozen=True)
class Face:
    """Describe one face.

    version: the result of cudnnGetProperty.
    release: the release that the library emulates unless DUALDNN_AS names another one.
    numbers: maps statuses to numbers that differ from the document's.
    read_as: maps numbers of the release to statuses. families: maps their thousands to statuses.
    enumerators: maps a type to the names and numbers that the document lacks.
    served: maps a call of the release to the documented call that runs it.
    given: maps a call of the release to values of that call's parameters which it lacks.
    absent: lists calls that return NOT_SUPPORTED.
    messages: declares the calls that return an error's text.
    sizes: maps a call without arguments to the number that it returns.
    parameters: the C parameters of calls that the document lacks.
    """

    version: tuple[int, int, int] = VERSION
    parts: tuple[str, ...] = ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train")
    release: str | None = None
    numbers: Mapping[cudnnStatus_t, int] = field(default_factory=dict)
    read_as: Mapping[int, cudnnStatus_t] = field(default_factory=dict)
    families: Mapping[int, cudnnStatus_t] = field(default_factory=dict)
    enumerators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    served: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def major(self) -> int:
        return self.version[0]

    @property
    def library(self) -> str:
        """Return the file name, soname and version node; clients import cudnnCreate@libcudnn.so.8."""
        return f"libcudnn.so.{self.major}"

    @property
    def formula(self) -> str:
        """Return the release's formula for CUDNN_VERSION, in C."""
        return f"(CUDNN_MAJOR * {self._thousands} + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)"

    @property
    def number(self) -> int:
        """Return the result of cudnnGetVersion."""
        return self.version[0] * self._thousands + self.version[1] * 100 + self.version[2]

    @property
    def _thousands(self) -> int:
        return 10000 if self.major > 8 else 1000

    def status(self, status: int) -> int:
        """Return the number of a documented status."""
        return self.numbers.get(cudnnStatus_t(status), int(status)) if self.numbers else int(status)

    def documented(self, number: int) -> cudnnStatus_t:
        """Return the documented status for a number of this release, or INTERNAL_ERROR if it is unknown."""
        if number in self.read_as:
            return self.read_as[number]
        if number >= 1000 and self.families:
            return self.families.get(number // 1000, cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR)
        try:
            return cudnnStatus_t(number)
        except ValueError:
            return cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Return every function of the face by its name."""
        table = functions()
        return table | {name: self._later(name, table[by]) for name, by in self.served.items()}

    def _later(self, name: str, by: Function) -> Function:
        kept = tuple(p for p in by.parameters if p.name not in self.given.get(name, {}))
        return replace(by, name=name, parameters=kept)

    def body(self, name: str) -> Callable[..., Any] | None:
        """Return the Python function for a call with the parameters of the release, or None if there is none."""
        by = self.served.get(name, name)
        called: Callable[..., Any] | None = getattr(cudnn, by, None)
        if called is None or name not in self.given:
            return called
        return _without(called, functions()[by], self.given[name])

    def values(self, kind: str) -> dict[str, int]:
        """Return the enumerators of a type with the numbers of this release."""
        known = enumerations.ENUMERATIONS.get(kind)
        found = {} if known is None else {name: int(member) for name, member in known.__members__.items()}
        if kind == "cudnnStatus_t":
            found = {name: self.status(number) for name, number in found.items()}
        return found | dict(self.enumerators.get(kind, {}))

    def names_of_statuses(self) -> dict[int, str]:
        """Return the name of every status by its number; if two names share a number, the document's wins."""
        values = self.values("cudnnStatus_t")
        return {number: name for name, number in reversed(values.items())}


def _without(called: Callable[..., Any], function: Function, given: Mapping[str, int]) -> Callable[..., Any]:
    """Return a documented call without some parameters: inputs among them get the given values, outputs are dropped."""
    inputs = [(i, given[p.name]) for i, p in enumerate(function.arguments) if p.name in given]
    outputs = [p.name not in given for p in function.parameters if p.is_returned]

    def call(*arguments: Any) -> Any:
        all_of_them = list(arguments)
        for i, value in inputs:
            all_of_them.insert(i, value)
        found = called(*all_of_them)
        return tuple(compress(found, outputs)) if outputs else found

    return call


@cache
def face(major: int) -> Face:
    """Return the face of a release; raise ValueError if there is none."""
    if major not in (8, 9):
        raise ValueError(f"face is {major}, there are 8 and 9")
    data: dict[str, Any] = json.loads(
        (resources.files("dualdnn.api") / "document" / f"release_{major}.json").read_text()
    )
    later = Face(
        served={name: entry["by"] for name, entry in data["served"].items()},
        given={name: entry["given"] for name, entry in data["served"].items() if "given" in entry},
        absent=tuple(data["absent"]),
        sizes={name: entry["value"] for name, entry in data.get("sizes", {}).items()},
        parameters={name: entry["parameters"] for part in ("served", "absent") for name, entry in data[part].items()},
    )
    if major == VERSION[0]:
        return later
    numbers = {cudnnStatus_t[name]: int(entry["value"]) for name, entry in data["statuses"].items()}
    more = {int(number): cudnnStatus_t[name] for number, name in data["read_as"].items()}
    return replace(
        later,
        version=tuple(data["version"]),
        parts=("graph", "ops", "cnn", "adv"),
        release=".".join(map(str, data["version"][:2])),
        numbers=numbers,
        read_as={number: status for status, number in numbers.items()} | more,
        families={int(family): cudnnStatus_t[name] for family, name in data["families"].items()},
        enumerators={kind: entry["values"] for kind, entry in data["enumerators"].items()},
        messages=tuple(entry["declaration"] for entry in data["messages"].values()),
    )
