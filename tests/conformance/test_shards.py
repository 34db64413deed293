"""Test runs on several machines: shards, stopped runs that resume, and the merged report."""

from __future__ import annotations

import json

import pytest
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import read_json
from dualdnn.conformance.suite import journal
from dualdnn.conformance.suite.merge import MergeError, check_set
from dualdnn.conformance.suite.selection import in_shard, shard_of

CASES = [
    "activation/test_forward_dimensions_must_agree",
    "activation/test_forward_in_place_needs_equal_strides",
    "activation/test_backward_in_place_needs_equal_strides",
    "activation/test_forward_beyond_five_dimensions",
]
RUN = ["conformance", "--subject", "reference", "--jobs", "1", *(word for case in CASES for word in ("--case", case))]


def test_every_case_is_in_one_shard():
    cases = [f"family/test_{index}" for index in range(200)]
    parts = [[case for case in cases if in_shard(case, index, 7)] for index in range(1, 8)]
    assert sorted(case for part in parts for case in part) == sorted(cases) and min(map(len, parts)) > 10


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/", "-1/2", "1/2/3"])
def test_an_invalid_shard_is_refused(text, capsys):
    with pytest.raises(ValueError, match="expected i/n"):
        shard_of(text)
    assert main(["conformance", f"--shard={text}"]) == 2
    assert "--shard" in capsys.readouterr().err


def facts(shard, **changes):
    return {"shard": shard, "state": "partial", "commit": "c", "solvers": "all", **changes}


@pytest.mark.parametrize("environments, message", [
    ([facts("1/3"), facts("3/3")], "no shard 2/3"),
    ([facts("1/2"), facts("1/2")], "same shard"),
    ([facts("1/2"), facts("2/3")], "one number is due"),
    ([facts("1/2"), facts("2/2", commit="d")], "commit of two is 'd'"),
    ([facts("1/2"), facts("2/2", tier="smoke, version 1")], "tier of two"),
    ([facts("1/2"), facts("2/2", state="interrupted")], "--resume"),
    ([{"state": "complete"}], "without --shard"),
])  # fmt: skip
def test_a_set_that_is_not_complete_is_refused(environments, message):
    with pytest.raises(MergeError, match=message):
        check_set(["one", "two"][: len(environments)], environments)


def test_merged_shards_are_the_run(tmp_path, capsys):
    """Merged shards give the cases and outcomes of one run; an incomplete set is refused."""
    folders = [str(tmp_path / name) for name in ("first", "second")]
    for index, folder in enumerate(folders, 1):
        assert main([*RUN, "--shard", f"{index}/2", "--out", folder]) == 0
    assert main([*RUN, "--out", str(tmp_path / "whole")]) == 0
    assert main(["merge", folders[0], "--out", str(tmp_path / "half")]) == 2
    assert "no shard 2/2" in capsys.readouterr().err and not (tmp_path / "half").exists()
    assert main(["merge", *folders, "--out", str(tmp_path / "merged")]) == 0
    merged, whole = (read_json(tmp_path / name / "compliance.json") for name in ("merged", "whole"))
    assert [(case.id, case.outcome) for case in merged.cases] == [(case.id, case.outcome) for case in whole.cases]
    assert merged.environment["state"] == "complete" and merged.environment["shards"] == 2


def test_a_stopped_run_goes_on_where_it_was(tmp_path, capsys):
    """A resumed run skips cases that have results, and refuses the results of another run."""
    out = tmp_path / "report"
    assert main([*RUN, "--out", str(out)]) == 0
    whole = read_json(out / "compliance.json")
    lines = (out / journal.RESULTS).read_text().splitlines()
    failed = {**json.loads(lines[1]), "outcome": "failed", "message": "it was so"}
    # A killed run leaves a truncated last line and no report.
    (out / journal.RESULTS).write_text("\n".join([lines[0], json.dumps(failed), lines[2], lines[3][:40]]))
    (out / "compliance.json").unlink()
    capsys.readouterr()
    assert main([*RUN, "--seed", "3", "--resume", "--out", str(out)]) == 2
    assert main([*RUN, "--resume", "--out", str(out)]) == 1
    again = read_json(out / "compliance.json")
    assert {case.id for case in again.cases} == {case.id for case in whole.cases}
    assert [case.id for case in again.cases if case.outcome == "failed"] == [failed["id"]]
    ran = (out / journal.RESULTS).read_text().splitlines()[1:]
    assert len(ran) == len(lines) - 3
    assert main([*RUN, "--resume", "--out", str(out)]) == 1  # No case is left, but the failure counts.


def test_a_damaged_journal_is_reported(tmp_path):
    path = tmp_path / journal.RESULTS
    path.write_text('{"commit": "c"}\nnonsense\n{"id": "a", "subject": "b"}\n')
    with pytest.raises(journal.JournalError, match="line 2"):
        journal.entries(path)
