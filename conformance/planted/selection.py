"""A pytest plugin: of each file of cases those that DUALDNN_PLANTED selects (JSON: file -> expression as of -k), until the file's first failure."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from _pytest.mark import KeywordMatcher
from _pytest.mark.expression import Expression

SELECTED: dict[str, str] = json.loads(os.environ.get("DUALDNN_PLANTED", "{}"))
_failed: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    matching = {stem: Expression.compile(text) for stem, text in SELECTED.items() if text}

    def wanted(item: Any) -> bool:
        expression = matching.get(item.path.stem)
        return expression is None or expression.evaluate(KeywordMatcher.from_item(item))

    items[:] = filter(wanted, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.path.stem in _failed:
        pytest.skip("a case of this file has failed")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py"))
