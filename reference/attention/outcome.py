"""Fill results sequence by sequence, with their worst-case and expected errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dualdnn.api.operations.specs import HALF

from ..engine import EXPECTED_ASKED, VALUES_ALONE, Exact, differs
from ..spread import Steps
from ..view import Array
from .tracked import Tracked


@dataclass
class Outcome:
    """Hold an array and, for the judge, the errors of its elements in each way (``Arithmetic.ways``)."""

    value: Array
    error: Array | None

    @classmethod
    def of(cls, value: Array, values_alone: bool) -> Outcome:
        """Make an outcome with zero errors; values_alone leaves the errors out."""
        if values_alone or VALUES_ALONE.get():
            return cls(value, None)
        return cls(value, np.zeros((1 + EXPECTED_ASKED.get(), *value.shape), value.dtype))

    def leave_open(self, where: Any) -> Outcome:
        """Set these elements to zero with infinite errors, so that they are not judged until something is stored there."""
        self.value[where] = 0
        for part in () if self.error is None else self.error:
            part[where] = np.inf
        return self

    def store(self, where: Any, found: Tracked) -> None:
        self.value[where] = found.value
        if self.error is not None:
            for part, of_part in zip(self.error, found.error, strict=True):
                part[where] = of_part

    def add(self, view: Callable[[Array], Array], found: Tracked) -> None:
        """Add to the elements that ``view`` selects from each array."""
        view(self.value)[...] += found.value
        if self.error is not None:
            for part, of_part in zip(self.error, found.error, strict=True):
                view(part)[...] += of_part


def exact(operation: Any, compute: Callable[[bool, bool], dict[str, Outcome]]) -> dict[str, Exact]:
    """Return the computed results with their errors.

    compute takes two flags: whether numbers beyond HALF become infinite where HALF may be kept, and whether only values
    are needed. It returns the outcomes.

    A factor beside an infinite value may underflow: the product is then infinite or NaN. Where a result depends on
    whether a number beyond HALF was kept in HALF, its non-finite elements are undetermined (docs/errata.md, D364).
    """
    outcomes = compute(False, False)

    @cache
    def overflowed() -> bool:
        beyond = compute(True, True)
        return any(differs(outcome.value, beyond[name].value).any() for name, outcome in outcomes.items())

    def found(name: str, outcome: Outcome) -> Exact:
        value = outcome.value
        if outcome.error is None:
            return Exact(value, np.zeros(()))
        error, *expected = outcome.error
        may_overflow = operation.attn.data_type == HALF and not np.isfinite(value).all()
        return Exact(
            value,
            error,
            1,
            undetermined=(lambda: ~np.isfinite(value) & overflowed()) if may_overflow else None,
            overflows=lambda: np.isinf(value) & ~np.isfinite(error),
            spread=Steps(expected[0]) if expected else None,
        )

    return {name: found(name, outcome) for name, outcome in outcomes.items()}
