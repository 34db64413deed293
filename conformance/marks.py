"""Mark cases with the clauses they show."""

from __future__ import annotations

from typing import Any

import pytest


def shows(*clauses: str) -> Any:
    """Mark a case with the clauses that a failure would violate."""
    return pytest.mark.shows(*clauses)
