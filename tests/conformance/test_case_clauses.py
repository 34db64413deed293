"""Test that the data lists the clauses that each case must show, so that a case which is deleted or shows less is
noticed.

python tests/conformance/test_case_clauses.py    # writes the data after a case was added or changed on purpose
"""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from dualdnn.conformance.cases import present_id
from dualdnn.conformance.corpus import collecting as corpus
from dualdnn.conformance.marks import shows
from dualdnn.conformance.refusals import collecting as refusals
from dualdnn.conformance.suite.expected import read_expected
from dualdnn.conformance.suite.files import case_files
from dualdnn.conformance.tiers import SMOKE, STANDARD, read_tier

ROOT = Path(__file__).parents[2]
CASES = ROOT / "conformance/cases"
DATA = CASES / "clauses.json"


def shown() -> dict[str, list[str]]:
    """Return case -> clauses that its marks name or its table's rows cite, for every case of the suite.

    Pinned operations and refusals may have one name, with other parameters."""
    found: dict[str, set[str]] = {}
    parameters: dict[str, set[str]] = {}
    makers = {".toml": refusals.module_of, ".jsonl": corpus.module_of, ".py": imported}
    for path in case_files():
        module = makers[path.suffix](path)
        for name, case in vars(module).items():
            if name.startswith("test_") and case.__module__ == module.__name__:
                clauses = {clause for mark in marks_of(case) if mark.name == "shows" for clause in mark.args}
                clauses |= getattr(case, "cited", frozenset())
                id_ = f"{path.stem}/{name}"
                assert not parameters.get(id_, set()) & parameters_of(case), f"two cases have the id {id_}"
                parameters[id_] = parameters.get(id_, set()) | parameters_of(case)
                found[id_] = found.get(id_, set()) | clauses
    return {case: sorted(clauses) for case, clauses in sorted(found.items())}


def parameters_of(case: Any) -> set[str]:
    """Return the parameters of a case in a table or a corpus; an empty text stands for none."""
    rows = [row for mark in getattr(case, "pytestmark", []) if mark.name == "parametrize" for row in mark.args[1]]
    return {str(row.values[0] if isinstance(row, ParameterSet) else row) for row in rows} or {""}


def marks_of(case: Any) -> list[Any]:
    """Return the marks of a case and of its parameters."""
    marks = list(getattr(case, "pytestmark", []))
    rows = (row for mark in marks if mark.name == "parametrize" for row in mark.args[1])
    return [*marks, *(mark for row in rows for mark in (row.marks if isinstance(row, ParameterSet) else ()))]


def imported(path: Path) -> ModuleType:
    """Return the module of a file of cases."""
    name = ".".join(("dualdnn.conformance.cases", *path.relative_to(CASES).with_suffix("").parts))
    return importlib.import_module(name)


def lost(due: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """Return what cases must show and do not show."""
    return [
        f"{case}: {clause}" if clause else f"{case} is no more"
        for case, clauses in due.items()
        for clause in ([""] if case not in now else [clause for clause in clauses if clause not in now[case]])
    ]


def test_every_case_shows_what_it_must():
    due, now = json.loads(DATA.read_text(encoding="utf-8")), shown()
    assert not lost(due, now)
    assert due == now, f"python {Path(__file__).relative_to(ROOT)} writes what is new: {sorted(set(now) - set(due))}"


def test_earlier_ids_lead_to_present_cases(tmp_path):
    """A list of expected failures may name cases by the ids of earlier releases; the tiers name present ones."""
    renamed, known = json.loads((CASES / "renamed.json").read_text(encoding="utf-8")), shown()
    for old, new in renamed.items():
        assert new.partition("[")[0] in known and ("[" in old or old not in known), old
        assert present_id(new) == new and present_id(old) == new, old
    listed = tmp_path / "expected.txt"
    listed.write_text(
        "".join(f"reference {old}\n" for old in renamed) + "library-* softmax/test_rows_that_threads_hold[x-1]\n"
    )
    expected = read_expected(listed)
    assert {case for _, case in expected.entries} == {*renamed.values(), "softmax/test_rows_in_registers[x-1]"}
    assert all(present_id(case) == case for name in (SMOKE, STANDARD) for case in read_tier(name).cases)


def test_a_mark_names_ranges_of_clauses():
    """A range includes both ends, and its numbers keep their width."""
    assert shows("a/c01", "b/c08-c11 c3", "c_t/c009-c010").args == (
        "a/c01", "b/c08", "b/c09", "b/c10", "b/c11", "b/c3", "c_t/c009", "c_t/c010",
    )  # fmt: skip


def test_one_id_in_two_files_is_reported(monkeypatch, tmp_path):
    """A table and a corpus may share a name, but no parameter of it."""
    table = '[accepted]\nget = { function = "cudnnGetErrorString", status = "CUDNN_STATUS_SUCCESS" }\n[refused]\n'
    table += 'case = { of = "get", "cudnnStatus_t/c05 BAD_PARAM" = [{ id = "one", status = -1 }] }\n'
    (tmp_path / "family.toml").write_text(table)
    for parameter in ("two", "one"):
        line = {"id": f"test_case[{parameter}]", "why": "It is there.", "operations": ["none"]}
        (tmp_path / "family.jsonl").write_text(json.dumps(line) + "\n")
        monkeypatch.setitem(shown.__globals__, "case_files", lambda: sorted(tmp_path.iterdir()))
        if parameter == "two":
            assert shown() == {"family/test_case": ["cudnnStatus_t/c05"]}
        else:
            with pytest.raises(AssertionError, match="two cases have the id family/test_case"):
                shown()


def test_a_deleted_case_and_a_deleted_clause_are_reported():
    due = shown()
    several = next(case for case, clauses in due.items() if len(clauses) > 1)
    assert lost(due, {case: clauses for case, clauses in due.items() if case != several}) == [f"{several} is no more"]
    assert lost(due, {**due, several: due[several][1:]}) == [f"{several}: {due[several][0]}"]


def idle(source: str) -> list[str]:
    """Return the cases of a source that use no argument and assert nothing that has a name. Under faults (conformance/suite/prove.py)
    they would pass, as there is nothing to change."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            given = {argument.arg for argument in node.args.args}
            lines = [part for line in node.body for part in ast.walk(line)]
            used = given & {part.id for part in lines if isinstance(part, ast.Name)}
            asserted = {
                name
                for part in lines
                if isinstance(part, ast.Assert)
                for name in ast.walk(part.test)
                if isinstance(name, ast.Name)
            }
            found += [node.name] * (not used and not asserted)
    return found


def test_every_case_looks_at_something():
    assert [name for path in CASES.rglob("[!_]*.py") for name in idle(path.read_text(encoding="utf-8"))] == []


def test_a_case_without_a_check_is_reported():
    assert idle(
        "def test_a(trial):\n    trial(1)\ndef test_b(trial):\n    assert True\ndef test_c():\n    assert A\n"
    ) == ["test_b"]


if __name__ == "__main__":
    DATA.write_text(json.dumps(shown(), indent=1) + "\n", encoding="utf-8")
