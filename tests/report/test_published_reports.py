"""Test that no published report lists an implemented function as missing, and that its files are small."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from dualdnn.api import cudnn, miopen
from dualdnn.api.document import functions
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.conformance.report import read_json, to_html, to_json, to_junit

REPORTS = Path(__file__).parents[2] / "reports"
PUBLISHED = sorted(REPORTS.rglob("compliance.json.gz"))
OURS = ("reference", "accelerated", "crosscheck")


def implemented() -> set[str]:
    """Return the functions of both documents that the tree implements."""
    return {name for name in functions() if hasattr(cudnn, name)} | {
        name for name in miopen_functions() if hasattr(miopen, name)
    }


def lacking(report: dict[str, Any]) -> dict[str, list[str]]:
    """Return {subject: functions that the report lists as missing but the tree implements}."""
    found = {
        subject: sorted(
            name
            for name in implemented()
            if not report["functions"].get(name, {"implemented": {}})["implemented"].get(subject, False)
        )
        for subject in report["subjects"]
        if subject.startswith(OURS)
    }
    return {subject: names for subject, names in found.items() if names}


def test_a_gpu_and_the_emulated_device_have_published_reports():
    assert {"h200", "emulated"} <= {path.parent.name for path in PUBLISHED}


def test_the_report_of_a_gpu_compares_both_libraries_and_names_its_tree():
    report = json.loads(gzip.decompress((REPORTS / "h200" / "compliance.json.gz").read_bytes()))
    assert any(name.startswith("accelerated") for name in report["subjects"])
    assert any(not name.startswith(OURS) for name in report["subjects"])
    assert re.fullmatch("[0-9a-f]{8,40}", report["environment"]["commit"]) and report["environment"]["date"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: str(path.relative_to(REPORTS)))
def test_a_published_report_knows_every_function_of_the_tree(path):
    report = json.loads(gzip.decompress(path.read_bytes()))
    date = report["environment"].get("date")
    assert not lacking(report), f"{path.relative_to(REPORTS)} is of {date}: make it anew"


@pytest.mark.long  # reads and writes a report of 5 MB
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: str(path.relative_to(REPORTS)))
def test_a_whole_run_has_files_that_a_browser_and_ci_systems_take(path, tmp_path):
    whole = tmp_path / "compliance.json"
    whole.write_bytes(gzip.decompress(path.read_bytes()))
    report = read_json(whole)
    for made, limit in ((to_json, 6), (to_html, 3), (to_junit, 3)):  # MB
        assert len(made(report)) < limit * 10**6, made.__name__


def test_a_report_that_lacks_a_function_is_noticed():
    table = {name: {"library": "l", "implemented": {"accelerated:gpu": True}} for name in sorted(implemented())}
    report = {"subjects": ["accelerated:gpu", "library-91900"], "functions": table}
    assert not lacking(report)
    table["cudnnSoftmaxForward"]["implemented"]["accelerated:gpu"] = False
    del table["miopenCreate"]
    assert lacking(report) == {"accelerated:gpu": ["cudnnSoftmaxForward", "miopenCreate"]}
