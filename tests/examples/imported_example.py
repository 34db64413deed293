"""Import modules of examples as their own folder sees them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def imported(folder: str, name: str) -> Iterator[Any]:
    """Yield a module of a folder of examples. Its neighbours may share names with other modules."""
    names = {path.stem for path in EXAMPLES.rglob("*.py")}
    before, path = {each: sys.modules.pop(each) for each in names & sys.modules.keys()}, list(sys.path)
    sys.path.insert(0, str(EXAMPLES / folder))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path[:] = path
        for each in names:
            sys.modules.pop(each, None)
        sys.modules.update(before)
