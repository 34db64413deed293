"""How a case names the clauses it shows."""

from __future__ import annotations

from typing import Any

import pytest


def shows(*clauses: str) -> Any:
    """Mark a case with the clauses that would be violated if it failed."""
    return pytest.mark.shows(*clauses)
