"""Test that each solver makes two benchmark rows 1.25 times as fast, is the only one for a row, or is excused with
a reason."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from dualdnn.accelerated.solver import solver_names

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.fixture(scope="module")
def solver_value():
    spec = importlib.util.spec_from_file_location("solver_value", REPORTS / "solver_value.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def row(name, us, **ways):
    return {"name": name, "us": us, **ways}


def test_the_value_of_a_solver_is_the_time_that_it_saves(solver_value):
    """Tiles of a kernel count as one solver, small rows count by stream time, and removed solvers do not count."""
    first, second = "convolution.implicit_gemm_tma_128x256", "convolution.implicit_gemm_tma_128x64"
    other, gone = "convolution.implicit_gemm_mma_64", "convolution.gone"
    timed = [
        row("wide", {first: 10.0, second: 11.0, other: 13.0, gone: 1.0}),
        row("narrow", {first: 12.0, second: 10.0, other: 11.0}),
        row("small", {first: 10.0, other: 11.0}, stream_us={first: 10.0, other: 15.0}),
        row("lost", {first: 10.0, other: 5.0}),
    ]
    found = solver_value.standings(timed, {})
    tma = found["convolution.implicit_gemm_tma"]
    assert [(one.name, round(one.factor, 2)) for one in tma.won] == [("small", 1.5), ("wide", 1.3), ("narrow", 1.1)]
    assert tma.earns and tma.tiles[first] == 3 and tma.tiles[second] == 1
    mma = found["convolution.implicit_gemm_mma"]
    assert [one.name for one in mma.won] == ["lost"] and not mma.earns
    assert solver_value.standings(timed, {"convolution.implicit_gemm_mma": 1})["convolution.implicit_gemm_mma"].earns
    assert "convolution.gone" not in found


def test_every_solver_earns_its_place(solver_value):
    found, excused = (
        solver_value.standings(solver_value.timed_rows()["rows"], solver_value.served_alone()),
        solver_value.exceptions(),
    )
    assert not [solver for solver, standing in found.items() if not standing.earns and solver not in excused]
    assert not [solver for solver in excused if solver not in found or found[solver].earns]
    assert all(len(reason) > 10 for reason in excused.values())


def test_the_page_is_that_of_the_rows(solver_value):
    """The committed page is the table of the measured rows, with every solver and tile."""
    page = solver_value.TABLE.read_text()
    times = solver_value.timed_rows()
    found = solver_value.standings(times["rows"], solver_value.served_alone())
    assert page == solver_value.table(found, solver_value.exceptions(), times["device"], times["date"])
    assert not [name for name in solver_names() if name not in page]


def test_pages_and_reports_name_solvers_that_exist(solver_value):
    """A reader looks a name up in the tree; only the report on deleted solvers has names that are gone."""
    known = {one for name in solver_names() for one in (name, solver_value.kernel_of(name))}
    families = "|".join({name.partition(".")[0] for name in known})
    pages = [*solver_value.TABLE.parent.glob("*.md"), *REPORTS.glob("*.md")]
    named = {
        (page.name, name)
        for page in pages
        if page.name != "deleted_solvers.md"
        for name in re.findall(rf"\b(?:{families})\.(?!md\b|py\b|cuh?\b|json)[a-z]\w+", page.read_text("utf-8"))
    }
    assert len(named) > 100 and not [one for one in sorted(named) if one[1] not in known]
