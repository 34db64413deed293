"""Choose few operations that together show the same as all of them.

    python -m dualdnn.conformance.corpus.reducing FILE ...    # print the entries of these files that are superfluous

An operation shows what each solver that can serve it launches: kernels with their definitions, and the values of their
argument fields. It also shows each pair of its modes, types, layouts, factors and kinds of input, which the other
layers tell apart. Nothing is compiled or run: the emulated device plans, and its kernels are names.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import combinations
from pathlib import Path
from typing import Any

from dualdnn.accelerated import plans
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.solver import plan_by, possible_solvers
from dualdnn.api.operations import Operation, TensorSpec, parse
from dualdnn.conformance.tiers.choosing import union

Shown = frozenset[Hashable]
DERIVED = ("magic", "shift", "multiplier")  # Fields with these words in their names follow from other fields.
ANY_WORKSPACE = 2**40  # bytes, enough for every solver


class Named:
    """Stand for a kernel, by its source, name and definitions."""

    argument_bytes, maximum_threads, static_shared_bytes = 0, 1024, 0

    def __init__(self, source: Any, name: str, definitions: Any = ()) -> None:
        self.name = name
        self.key = (str(source), name, tuple(sorted(dict(definitions).items())))

    def wait_for_kernel(self) -> None:
        """Return at once, because nothing is compiled."""


class Planner:
    """Plan operations for the emulated device, and note the kernels that would be launched."""

    def __init__(self) -> None:
        self.device = EmulatedDevice(0)
        self.device.function = Named  # type: ignore[method-assign, assignment]
        self.device.function_when_ready = Named  # type: ignore[method-assign, assignment]
        self.seen: set[Hashable] = set()

    def launches(self, operation: Any) -> set[Hashable]:
        """Return the kernels, and the values of their fields, by every solver that can serve the operation."""
        if any(field.name == "workspace_bytes" for field in fields(operation)):
            operation = replace(operation, workspace_bytes=ANY_WORKSPACE)
        self.seen = set()
        with self._noting():
            for solver in possible_solvers(operation, self.device):
                self.seen.add(("solver", solver))
                plan_by(operation, self.device, solver)
        return self.seen

    @contextmanager
    def _noting(self) -> Iterator[None]:
        made = plans.Launch.__init__

        def noted(launch: Any, function: Any, arguments: Any, names: Any, grid: Any, *more: Any, **named: Any) -> None:
            made(launch, function, arguments, names, grid, *more, **named)
            self.seen.add(function.key)
            values = [*members(arguments), *((f"grid {i}", extent) for i, extent in enumerate(grid))]
            self.seen |= {(function.name, name, size_of(value)) for name, value in values}

        plans.Launch.__init__ = noted  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            plans.Launch.__init__ = made  # type: ignore[method-assign]


def members(arguments: ctypes.Structure, before: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of an argument structure by name, including nested structures."""
    for name, *_ in arguments._fields_:  # A bit field has three parts.
        value = getattr(arguments, name)
        parts = value if hasattr(value, "__len__") else [value]
        for i, part in enumerate(parts):
            if isinstance(part, ctypes.Structure):
                yield from members(part, f"{before}{name} {i}.")
            elif isinstance(part, (int, float)) and not any(word in name for word in DERIVED):
                yield f"{before}{name} {i}", part


def size_of(value: float) -> Hashable:
    """Return the class of a field's value: small numbers are their own class, larger ones share a power of eight."""
    if isinstance(value, float):
        return value if value in (0.0, 1.0) else "another factor"
    return value if -1 <= value <= 3 else (value > 0, len(f"{abs(value):o}"))


def traits(operation: Operation, inputs: Any) -> set[tuple[str, Hashable]]:
    """Return the modes, types, layouts and factors of an operation by name, and its kind of input."""
    found: set[tuple[str, Hashable]] = {("inputs", json.dumps(inputs, sort_keys=True))}
    todo: list[tuple[str, Any]] = [("", operation)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, TensorSpec):
            found |= {(f"{name} type", value.data_type), (f"{name} layout", layout_of(value))}
        elif is_dataclass(value):
            todo += [(f"{name}.{field.name}", getattr(value, field.name)) for field in fields(value)]
        elif isinstance(value, Enum | bool | None):
            found.add((name, value))
        elif isinstance(value, float):
            found.add((name, size_of(value)))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            todo += [(f"{name} {i}", part) for i, part in enumerate(value)]
        elif isinstance(value, int | tuple):
            found.add((name, len(value) if isinstance(value, tuple) else size_of(value)))
    return found


def layout_of(spec: TensorSpec) -> Hashable:
    """Return the dimensions of a tensor in the order of their strides, and whether it has no gaps."""
    order = sorted(range(len(spec.dims)), key=lambda i: (-spec.strides[i], i))
    return tuple(order), spec.count == spec.nbytes // max(1, spec.scalar_bytes)


def shown_by(planner: Planner, operations: Sequence[Operation], inputs: Any, more: Iterable[Hashable] = ()) -> Shown:
    """Return everything that a chain of operations shows. more: further things to keep, such as an operand's offset."""
    found: set[Hashable] = set(more)
    for operation in operations:
        kind = type(operation).__name__
        found |= planner.launches(operation)
        ordered = sorted(traits(operation, inputs), key=lambda trait: trait[0])
        found |= {(kind, *pair) for pair in combinations(ordered, 2)}
    return frozenset(found)


def chosen(shown: Mapping[str, Shown], kept: Iterable[str] = ()) -> list[str]:
    """Return the names of ``kept``, then names that together show all the rest, the most telling first.
    A name that the others make superfluous is left out at the end."""
    had = list(kept)
    left = union(shown.values()) - union(shown[name] for name in had)
    wanted, picked = left, []
    gains = {name: len(found & left) for name, found in shown.items()}
    while left:
        best = ""
        for name in sorted(gains, key=lambda name: (-gains[name], name)):
            if best and gains[name] <= gains[best]:
                break
            gains[name] = len(shown[name] & left)
            best = name if not best or gains[name] > gains[best] else best
        picked.append(best)
        left = left - shown[best]
        del gains[best]
    counts: dict[Hashable, int] = {}
    for name in picked:
        for one in shown[name] & wanted:
            counts[one] = counts.get(one, 0) + 1
    for name in picked[::-1]:
        if all(counts[one] > 1 for one in shown[name] & wanted):
            picked.remove(name)
            for one in shown[name] & wanted:
                counts[one] -= 1
    return had + picked


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many entries of files are needed to show everything, and the ids of superfluous ones."""
    parser = argparse.ArgumentParser(
        prog="python -m dualdnn.conformance.corpus.reducing", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="files of lines like those of conformance/corpus"
    )
    planner, shown = Planner(), {}
    for path in parser.parse_args(arguments).files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            values = json.loads(line)
            operations = [parse(text) for text in values["operations"]]
            more = [
                ("offsets", tuple(values.get("offsets", ()))),
                ("aliases", tuple(values.get("aliases", {}).items())),
            ]
            more += [("clause", clause) for clause in values.get("clauses", ())]
            shown[f"{path.name}, line {number}: {values.get('id', '')}"] = shown_by(
                planner, operations, values.get("inputs", "normal"), more
            )
    needed = chosen(shown)
    print(f"{len(needed)} of {len(shown)} entries show all {len(union(shown.values()))} things that they show")
    print(*(f"superfluous: {name}" for name in shown if name not in needed), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
