"""Build the C library once for the tests of its memo. Run Python programs that call it as C would, each in a fork of a process with the imports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

HELP = (Path(__file__).parent / "calls.py").read_text()
IMPORTS = "import json, numpy, dualdnn.accelerated, dualdnn.conformance.fuzz.c_library, dualdnn.api.abi.entry"
READ_FIRST = ("DUALDNN_MEMO", "LD_LIBRARY_PATH")  # variables that imports or the loader read


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip these tests without a compiler, because there is no library then."""
    if shutil.which("gcc") is None:
        for item in items:
            item.add_marker(pytest.mark.skip("no C compiler"))


@pytest.fixture(scope="session")
def library(built_library: Any) -> Path:
    return built_library()


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Forked]]:
    """Return a function that returns a process with the imports of all programs, one for each set of variables."""
    made: dict[Any, Forked] = {}

    def process(**variables: str) -> Forked:
        key = tuple(variables.items())
        if key not in made:
            made[key] = Forked(tmp_path_factory.mktemp("programs"), IMPORTS, **variables)
        return made[key]

    yield process
    for each in made.values():
        each.close()


@pytest.fixture
def ran(library: Path, processes: Callable[..., Forked]) -> Any:
    """Return a function that runs a program after calls.py and returns what it printed. Its exit status must be 0."""

    def run(program: str, *arguments: str, **variables: str) -> str:
        first = {name: variables[name] for name in READ_FIRST if name in variables}
        return processes(**first).run(HELP + program, str(library), *arguments, **variables)

    return run


EMULATED = {"DUALDNN_BACKEND": "accelerated", "DUALDNN_DEVICE": "emulated"}
