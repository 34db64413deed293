"""Runs a test for each of many values as one item of pytest: an item costs more than a quick check does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def for_each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Return a decorator with the arguments of ``pytest.mark.parametrize``. A failure says its values in a note."""
    wanted, listed = names.replace(" ", "").split(","), list(values)
    assert listed, names

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            for value in listed:
                chosen = dict(zip(wanted, value if len(wanted) > 1 else (value,), strict=True))
                try:
                    test(**given, **chosen)
                except BaseException as error:
                    error.add_note(f"where {chosen}")
                    raise

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in wanted]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
