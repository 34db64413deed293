"""Test the tiers of the suite: their frozen lists, and how cases are chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from dualdnn.api.document import functions
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import is_complete, read_json, tier_of
from dualdnn.conformance.suite.completeness import lacking
from dualdnn.conformance.tiers import FULL, SMOKE, STANDARD, Tier, TierError, read_tier
from dualdnn.conformance.tiers.choosing import Candidate, aims, chosen, cost_of

CASES = Path(__file__).parents[2] / "conformance/cases"
LISTED = [SMOKE, STANDARD]


@pytest.mark.parametrize("name", LISTED)
def test_every_function_has_a_case_in_each_tier(name):
    tier = read_tier(name)
    assert set(tier.functions) >= {*functions(), *miopen_functions()}
    assert set(tier.functions.values()) <= set(tier.cases)


@pytest.mark.parametrize("name", LISTED)
def test_the_functions_of_listed_cases_exist(name):
    """This checks function names only; a whole run also fails if a listed case, with its parameters, did not run."""
    known = json.loads((CASES / "clauses.json").read_text(encoding="utf-8"))
    assert {case.partition("[")[0] for case in read_tier(name).cases} <= set(known)


def test_a_smaller_tier_is_part_of_a_larger_one():
    assert set(read_tier(SMOKE).cases) < set(read_tier(STANDARD).cases) and read_tier(FULL) is None


def test_a_changed_list_is_a_version():
    first = Tier("standard", (), ()).changed(["a/test_x", "a/test_y"], {"cudnnCreate": "a/test_x"})
    second = first.changed(["a/test_x", "a/test_y", "a/test_z"], {})
    first.check(), second.check()
    assert (first.version, second.version, second.versions[1].added) == (1, 2, 1)
    assert second.changed(second.cases, {}).version == 2
    with pytest.raises(TierError, match="not those of its version 2"):
        replace(second, cases=second.cases[:2]).check()
    with pytest.raises(TierError, match="names cases of functions that it lacks: cudnnDestroy"):
        replace(second, functions={"cudnnDestroy": "a/test_gone"}).check()


def test_a_removed_case_needs_a_reason():
    tier = Tier("standard", (), ()).changed(["a/test_x", "a/test_y"], {})
    with pytest.raises(TierError, match="say why"):
        tier.changed(["a/test_x"], {})
    smaller = tier.changed(["a/test_x"], {}, "the call is no more")
    smaller.check()
    assert smaller.versions[-1].removed == {"a/test_y": "the call is no more"}
    silent = replace(smaller.versions[-1], removed={"a/test_y": ""})
    with pytest.raises(TierError, match="without a reason"):
        replace(smaller, versions=(*smaller.versions[:-1], silent)).check()


def test_the_choice_shows_everything_and_shares_modules():
    a, b, c = (("clause", "reference", name) for name in "abc")
    known = {
        "one": Candidate({a}, {"m"}, 0.01),
        "two": Candidate({b}, {"m"}, 0.1),
        "elsewhere": Candidate({b}, {"n"}, 0.09),
        "slow": Candidate({a, b, c}, {"o", "p"}, 60),
        "three": Candidate({c}, set(), 0.2),
    }
    picked = chosen(known, aims(known))
    assert sorted(picked) == ["one", "three", "two"] and cost_of(known, picked)[1] == 1
    assert chosen(known, aims(known), have=["slow"]) == []
    assert chosen(known, {a}, have=["two"]) == ["one"]


def test_a_whole_run_misses_cases_of_the_list():
    subjects = [SimpleNamespace(name=name, shows=("cpu", "both")) for name in ("reference", "accelerated:emulated")]
    missing = lacking([], subjects, read_tier(SMOKE), None)
    own = {case for case in read_tier(SMOKE).cases if not case.startswith("recorded_calls/")}
    assert set(missing.unrun) == own
    assert any("did not run" in line for line in missing.lines())


def test_a_report_names_its_tier(tmp_path, capsys):
    """A run may replace a report of its own tier, but not the report of a larger tier."""
    case = next(case for case in read_tier(SMOKE).cases if case.startswith("activation/"))
    run = ["conformance", "--subject", "reference", "--tier", "smoke", "--jobs", "1", "--out", str(tmp_path)]
    run += ["--case", case]
    assert main(run) == 0
    report = read_json(tmp_path / "compliance.json")
    assert report.environment["tier"] == str(read_tier(SMOKE)) and tier_of(tmp_path) == SMOKE
    assert {found.id for found in report.cases} <= set(read_tier(SMOKE).cases)
    text = (tmp_path / "compliance.json").read_text().replace('"state": "partial"', '"state": "complete"')
    (tmp_path / "compliance.json").write_text(text.replace('"tier": "smoke, ', '"tier": "standard, '))
    assert is_complete(tmp_path)
    assert main(run[:-2]) == 2
    assert "holds the report of the standard tier" in capsys.readouterr().err
