"""Make cases of the pinned operations: run and judge each line of <module>.jsonl that has the id of a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dualdnn.api.operations import Operation

from ..calls import Caller, sized
from ..fuzz.entries import Entry
from ..solvers import divided_among
from ..trial import Step
from . import FOLDER, Pinned, cases

GIVEN = "given"  # The operations of a line state their workspace.


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect a file of pinned operations as if it were a module of cases."""
    if file_path.suffix != ".jsonl" or file_path.parent != FOLDER:
        return None
    module: pytest.Module = Pins.from_parent(parent, path=file_path, nodeid=f"{FOLDER.name}/{file_path.name}")
    return module


class Pins(pytest.Module):
    """Collect the cases of a file."""

    def _getobj(self) -> ModuleType:
        return module_of(self.path)


@pytest.fixture
def pin() -> str:
    """Return the parameter of a case without parameters."""
    return ""


def module_of(path: Path) -> ModuleType:
    """Return a module with each test that the lines of a file name."""
    module = ModuleType(f"{__package__}.{path.stem}")
    for name, pins in cases(path).items():
        test = _test(pins)
        test.__module__ = module.__name__
        setattr(module, name, test)
    return module


def _test(pins: dict[str, list[Pinned]]) -> Any:
    def test(chain: Any, caller: Any, pin: str) -> None:
        for one in pins[pin]:
            wanted = one.line.get("multiprocessors")
            with divided_among(caller.handle, wanted) if wanted else nullcontext():
                for offsets in one.turns:
                    run_entry(one.entry, chain, None if one.workspace == GIVEN else caller, one.steps, offsets)

    first = next(iter(pins.values()))[0]
    test.__doc__ = first.why
    marks = {name: _marks(several) for name, several in pins.items()}
    if list(pins) == [""]:
        for mark in marks[""]:
            test = mark(test)
    else:
        test = pytest.mark.parametrize("pin", [pytest.param(name, marks=marks[name]) for name in pins])(test)
    return pytest.mark.ours(test) if first.ours else test


def _marks(lines: list[Pinned]) -> list[pytest.MarkDecorator]:
    """Return the mark with the clauses that the lines of one parameter show."""
    clauses = dict.fromkeys(clause for one in lines for clause in one.clauses)
    return [pytest.mark.shows(*clauses)] if clauses else []


def run_entry(
    entry: Entry,
    chain: Callable[..., Any],
    caller: Caller | None,
    made: Callable[[Sequence[Operation]], list[Step]] | None = None,
    offsets: Mapping[str, int] | None = None,
) -> None:
    """Run an entry by the fixture ``chain``. caller: asks for the workspaces, None where the operations state them.
    made: returns the steps where they differ in more than the operation. offsets: replace the entry's offsets."""
    drawn = entry.drawn
    operations = drawn.steps if caller is None else [sized(caller, step) for step in drawn.steps]
    steps = made(operations) if made else [Step(one, dict(drawn.aliases), drawn.inputs) for one in operations]
    chain(*steps, seed=entry.seed, before=entry.before, offsets=dict(drawn.offsets if offsets is None else offsets))
