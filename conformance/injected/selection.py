"""Select the cases that the file DUALDNN_INJECTED names, as a pytest plugin.

In its JSON, "files" maps files of cases to expressions as for -k; each file runs until its first failure. "ordered"
lists cases that run in this order until the first failure, or until one does not end.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import KeywordMatcher
from _pytest.mark.expression import Expression
from dualdnn.conformance.suite.items import case_id

WANTED: dict[str, Any] = json.loads(Path(os.environ["DUALDNN_INJECTED"]).read_text(encoding="utf-8"))
_failed: set[str] = set()
_printed = os.dup(1)  # This is opened before pytest captures the output.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if WANTED["ordered"]:
        place = {case: i for i, case in enumerate(WANTED["ordered"])}
        named = [(place.get(case_of(item), -1), item) for item in items]
        items[:] = [item for i, item in sorted(named, key=lambda pair: pair[0]) if i >= 0]
        return
    matching = {stem: Expression.compile(text) for stem, text in WANTED["files"].items() if text}

    def wanted(item: Any) -> bool:
        expression = matching.get(item.path.stem)
        return expression is None or expression.evaluate(KeywordMatcher.from_item(item))

    items[:] = filter(wanted, items)


def case_of(item: Any) -> str:
    """Return the id of a case, or an empty text without a subject."""
    subject = getattr(getattr(item, "callspec", None), "params", {}).get("subject")
    return case_id(item, subject) if isinstance(subject, str) else ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.stem in _failed:
        pytest.skip("a case of this file has failed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(Path(report.nodeid.partition("::")[0]).stem)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process if a case takes far too long. Kernels run without Python's lock, so a thread can check this."""
    done, begin = threading.Event(), time.process_time()

    def watch() -> None:
        while not done.wait(2):
            if time.process_time() - begin > WANTED["max_seconds"]:
                os.write(_printed, f"\nendless: {case_of(item)}\n".encode())
                os._exit(3)

    if WANTED["ordered"]:
        threading.Thread(target=watch, daemon=True).start()
    yield
    done.set()
