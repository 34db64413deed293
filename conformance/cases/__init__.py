"""Hold the cases of the suite, and which cases have other ids than in earlier releases (renamed.json)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def _renamed() -> dict[str, str]:
    """Return the earlier ids of cases, or of tests with any parameters -> their present ids."""
    found: dict[str, str] = json.loads(resources.files(__package__).joinpath("renamed.json").read_text("utf-8"))
    return found


def present_id(case: str) -> str:
    """Return the present id of a case that a list or a report may name by an earlier one."""
    test, bracket, parameters = case.partition("[")
    return _renamed().get(case) or _renamed().get(test, test) + bracket + parameters
