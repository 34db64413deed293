"""Test that the list of injected bugs is valid. The runner tells which bugs the cases notice, also if it tries
several at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dualdnn.conformance import injected
from dualdnn.conformance.injected import (
    ENDED,
    GONE,
    NOTICED,
    SURVIVED,
    UNDECIDED,
    Bug,
    Copy,
    batches,
    bugs,
    families_of,
    summary,
)
from dualdnn.conformance.injected import __main__ as command
from dualdnn.conformance.injected.mutants import Edit, PythonEdits, cuda_edits, drawn, not_compiled
from dualdnn.conformance.injected.reach import Reach, functions_with
from dualdnn.conformance.suite.files import case_files

CLAUSES = Path(injected.__file__).parent.parent / "cases/clauses.json"  # case -> clauses, for every case
VERSION = Bug(
    "api/cudnn/library.py", " * 100 + VERSION[2]", " * 100 + VERSION[1]", "the version", ("library",), "version"
)


def test_the_bugs_can_be_injected():
    listed = bugs()
    assert len(listed) >= 100 and len({(bug.file, bug.old, bug.new) for bug in listed}) == len(listed)
    stems = {path.stem for path in case_files()}
    for bug in listed:
        assert bug.old != bug.new and set(bug.cases) <= stems, bug
        path = injected.source_of(bug.file)
        assert path.is_file() and bug.applies_to(path.read_text()), f"{bug.file} has changed: {bug.old!r}"


def test_the_names_that_a_bug_selects_exist():
    """Words of ``k`` in small letters with an underscore are parts of names; other words may be of parameters."""
    names: dict[str, set[str]] = {}
    for case in json.loads(CLAUSES.read_text(encoding="utf-8")):
        stem, _, name = case.partition("/")
        names.setdefault(stem, set()).add(name)
    for bug in bugs():
        there, words = (
            [name for stem in bug.cases for name in names[stem]],
            re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", bug.k),
        )
        assert not words or any(word in name for word in words for name in there), f"no case is selected: {bug}"


def test_every_layer_and_family_has_some():
    listed = bugs()
    assert {bug.layer for bug in listed} == {"api", "reference", "accelerated"}
    families = {family for bug in listed for family in families_of(bug)}
    assert families >= {"activation", "attention", "convolution", "ctc", "dropout", "fused", "graph", "miopen", "normalization", "pooling",
                        "reduce", "rnn", "softmax", "spatial", "tensor", "transform"}  # fmt: skip


def test_at_once_are_bugs_of_different_families():
    for batch in batches(bugs(), 6):
        assert len(batch) <= 6 and len({bug.judged_on for bug in batch}) == 1
        families = [family for bug in batch for family in families_of(bug)]
        assert len(batch) == 1 or len(set(families)) == sum(len(families_of(bug)) for bug in batch)
    assert sum(map(len, batches(bugs(), 6))) == len(bugs())
    of_one_file = replace(VERSION, old="no more", cases=("pooling",))
    assert batches([VERSION, of_one_file], 6) == [[VERSION], [of_one_file]], "one would be written over the other"


def test_injected_bugs_are_noticed_survive_or_lack_their_text(tmp_path):
    """One copy has three bugs: a case sees one, the named case misses one, and the text of one is gone."""
    blind = Bug(
        "api/cudnn/activation.py", "alpha, beta, yDesc", "alpha, 0.0, yDesc", "beta", ("activation",), "test_null"
    )
    gone = Bug("api/cudnn/dropout.py", "no such text", "", "nothing", ("dropout",))
    copy = Copy(tmp_path)
    before = copy.read(VERSION.file)
    found = {one.bug: one for one in copy.try_bugs([VERSION, blind, gone], 120)}
    assert [found[bug].state for bug in (VERSION, blind, gone)] == [NOTICED, SURVIVED, GONE]
    assert found[VERSION].by.startswith("library/test_") and copy.read(VERSION.file) == before
    assert [one.state for one in copy.innocent([found[VERSION]])] == [NOTICED]
    assert summary(list(found.values())).splitlines()[-1] == "| all | 2 | 1 |"


@pytest.mark.long
def test_cases_in_order(tmp_path):
    """The first failing case and an endless case end the run. What takes too long is not decided."""
    cases = ("library/test_error_strings", "library/test_version", "library/test_no_such_case")
    bug = replace(VERSION, ordered=cases, cases=())
    endless = replace(bug, old="return CUDNN_VERSION", new="return sum(iter(lambda: 1, 0))")
    copy = Copy(tmp_path)
    copy.max_seconds = 3
    found = [copy.try_bugs([one], 120)[0] for one in (bug, endless)]
    assert [one.state for one in found] == [NOTICED, ENDED]
    assert all("library/test_version" in one.by for one in found)
    once = tmp_path / "once"
    slow = f"__import__('os').path.exists({str(once)!r}) or (open({str(once)!r}, 'w'), sum(iter(lambda: 1, 0)))"
    waited = copy.try_bugs([replace(endless, new=f"{slow}\n    return CUDNN_VERSION")], 120)[0]
    assert (waited.state, waited.by) == (UNDECIDED, "library/test_version ended alone"), "it waited for others"
    assert copy.try_bugs([endless], 2)[0].state == UNDECIDED
    assert len(batches([bug, replace(bug, cases=("pooling",))], 6)) == 2
    late = Copy(tmp_path / "late", until=0)
    assert late.try_bugs([bug], 120)[0].state == UNDECIDED, "nothing goes on after the time for all"
    assert list(injected.tried([bug], 1, 120, all_seconds=0)) == [], "and nothing begins"


def test_on_a_gpu(tmp_path, monkeypatch):
    """Mutants of accelerated/ are judged on the GPU. Survivors are written as lines, and tried again elsewhere."""
    asked = []

    def tried(wanted, jobs, seconds, at_once, all_seconds):
        asked.append(wanted)
        states = [NOTICED, UNDECIDED, *[SURVIVED] * 10] if len(wanted) == 12 else [SURVIVED] * len(wanted)
        yield from (injected.Outcome(bug, state, "", 1.0, 7) for bug, state in zip(wanted, states, strict=True))

    monkeypatch.setattr(command, "tried", tried)
    monkeypatch.setattr(command, "verified", lambda outcomes, jobs: list(outcomes))
    monkeypatch.setattr(Copy, "max_seconds", Copy.max_seconds)
    (tmp_path / "kernels.json").write_text(json.dumps({"kernels": {}, "seconds": {}}))
    kernels, lines = ["--kernels", str(tmp_path / "kernels.json")], tmp_path / "lines"
    for options in (
        ["--mutants", "12", "--layer", "accelerated", "--gpu", "--lines", str(lines)],
        ["--left", str(lines), "--all-solvers"],
    ):
        monkeypatch.setattr("sys.argv", ["injected", *options, *kernels])
        assert command.main() == 1
    first, again = asked
    assert [bug.breaks for bug in first] == [bug.breaks for bug in drawn(12, 0, ("accelerated",), gpu=True)]
    assert all(bug.judged_on == (("accelerated", "--solvers", bug.solvers), ()) for bug in first)
    assert again == [replace(bug, subject="", solvers="all") for bug in first[1:]] and {
        b.solvers for b in first[1:]
    } > {"all"}
    assert [json.loads(text)["ran"] for text in lines.read_text().splitlines()] == [7] * 12


def test_somebody_stops_it(tmp_path, monkeypatch, capsys):
    """The running process ends although it has its own session, and what was found is kept."""
    program, ran = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\necho $$ >> {ran}\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(injected.sys, "executable", str(program))

    def stopped(wanted, jobs, seconds, at_once, all_seconds):
        yield injected.Outcome(VERSION, SURVIVED)
        found = injected.tried([VERSION] * 3, 1, seconds)
        threading.Thread(target=lambda: (waited(ran.exists), os.kill(os.getpid(), signal.SIGINT))).start()
        yield from found

    def waited(there):
        until = time.monotonic() + 60
        while not there() and time.monotonic() < until:
            time.sleep(0.01)

    monkeypatch.setattr(command, "tried", stopped)
    monkeypatch.setattr("sys.argv", ["injected", "--out", str(tmp_path / "out")])
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # The parent may ignore it.
    try:
        assert command.main() == 130
    finally:
        signal.signal(signal.SIGINT, previous)
    assert SURVIVED in (tmp_path / "out").read_text() and "interrupted" in capsys.readouterr().out
    assert not any(Path(f"/proc/{number}/stat").exists() for number in ran.read_text().split())


def test_cases_that_reach_a_source(tmp_path):
    launching = {
        "pooling_global_forward_rows": ["pooling/a[1]", "pooling/a[2]", "pooling/b"],
        "pooling_static_forward_loose": ["pooling/c"],
        "softmax_staged_rows": ["softmax/d"],
        "fused_ops_gradient_channels": ["fused/e"],
        "a_kernel_that_was_deleted": ["softmax/e"],
    }
    seconds = {
        "pooling/a[1]": 0.5,
        "pooling/a[2]": 0.1,
        "pooling/b": 0.3,
        "pooling/c": 1.0,
        "softmax/d": 0.2,
        "fused/e": 2.0,
    }
    (tmp_path / "kernels.json").write_text(json.dumps({"kernels": launching, "seconds": seconds}))
    reach = Reach(tmp_path / "kernels.json")
    own = ["pooling/a[2]", "pooling/b", "pooling/a[1]"]
    assert reach.cases("accelerated/pooling/global_forward.cu") == own
    turns = reach.cases("accelerated/pooling/global_forward.py")
    assert turns[0] == own[0] and sorted(turns) == sorted([*own, "pooling/c"]), "of the twin, and of the folder in turn"
    assert reach.solvers("accelerated/pooling/global_forward.cu") == "pooling.global_forward"
    assert set(reach.cases("accelerated/pooling/plan.py")) == {*own, "pooling/c"}, "of the folder"
    assert set(reach.cases("accelerated/pooling/functors.cuh")) == {*own, "pooling/c"}, "of those that include it"
    assert set(reach.cases("accelerated/primitives/geometry.py")) == set(seconds)
    assert reach.solvers("accelerated/primitives/geometry.py") == "all"
    assert reach.aimed(replace(VERSION, file="accelerated/softmax/staged.cu")).ordered == ("softmax/d",)
    of_reference = replace(VERSION, file="reference/pooling.py", cases=("pooling",))
    assert reach.aimed(of_reference).ordered == ("pooling/a[2]", "pooling/b", "pooling/c", "pooling/a[1]"), "in rounds"
    power = replace(VERSION, file="accelerated/primitives/types.cuh", old="const float power = exp2f(x)")
    assert set(reach.aimed(power).ordered) == set(seconds) and reach.aimed(power).ordered[0] == "softmax/d", (
        "of callers first"
    )
    source = "__device__ int inner(int x) { return x; }\n__device__ int other() { return 1; }\n__global__ void __launch_bounds__(f(2), 1) outer() { inner(2); }"
    assert functions_with(source, source.index("return x")) == {"inner", "outer"}


def test_bugs_of_a_file(tmp_path, monkeypatch):
    """A file has the form of bugs.json. A bug that names no cases gets the cases of its family."""
    entries = [
        {"file": "api/cudnn/softmax.py", "old": "a", "new": "b", "breaks": "c"},
        {"file": "reference/softmax.py", "old": "a", "new": "b", "breaks": "c", "cases": ["pooling"], "k": "d"},
    ]
    (tmp_path / "bugs").write_text(json.dumps(entries))
    asked = []

    def tried(wanted, jobs, seconds, at_once, all_seconds):
        asked.extend(wanted)
        yield from ()

    monkeypatch.setattr(command, "tried", tried)
    monkeypatch.setattr(command, "verified", lambda outcomes, jobs: list(outcomes))
    for options in ([], ["--layer", "reference"]):
        monkeypatch.setattr("sys.argv", ["injected", "--bugs", str(tmp_path / "bugs"), *options])
        assert command.main() == 0
    left_to_the_family = Bug("api/cudnn/softmax.py", "a", "b", "c", ("softmax",))
    named = Bug("reference/softmax.py", "a", "b", "c", ("pooling",), "d")
    assert asked == [left_to_the_family, named, named]


PYTHON = """
def first(a, b, spec):
    if call(a, b) < b and not spec.x_rank:
        expect(min(a, 4) > spec.y_rank, BAD_PARAM, "c07", f"a is {a + 1}")
    return NOT_SUPPORTED
"""
CUDA = """
struct Arguments {
  int images, channels;
};
__device__ int __launch_bounds__(256, 3) kernel(const Arguments a, float* x) {
  for (int i = 0; i < a.images; i++) x[i] = min(x[i] + 1.5f, 2.0f);  // i < 3
  __syncthreads();
#ifdef EMULATED_CUDA
  if (a.images == 4 && x) return 1;
#else
  if (a.images == 5) return;
#endif
}
"""


def applied(text: str, found: list[Edit]) -> set[tuple[str, str, str]]:
    return {(edit.kind, text[edit.start : edit.end], edit.new) for edit in found}


def test_edits_of_python():
    found = applied(PYTHON, PythonEdits(PYTHON).found)
    assert found >= {
        ("comparison", "<", "<="), ("comparison", ">", ">="), ("and, or", "and", "or"), ("dropped not", "not spec.x_rank", "spec.x_rank"),
        ("minimum, maximum", "min", "max"), ("constant", "4", "5"), ("constant", "4", "3"), ("clause", '"c07"', '"c08"'),
        ("wrong field", "spec.x_rank", "spec.y_rank"), ("wrong enumerator", "BAD_PARAM", "NOT_SUPPORTED"),
    }  # fmt: skip
    assert not any(old == "+" or new == "2" for _, old, new in found), "a message is not a result"


def test_edits_of_kernels():
    found = applied(CUDA, cuda_edits(CUDA))
    assert found >= {
        ("comparison", "<", "<="), ("index", "i", "i + 1"), ("minimum, maximum", "min", "max"), ("dropped statement", "__syncthreads();", ";"),
        ("wrong field", "images", "channels"), ("dropped term", " + 1.5f", ""), ("comparison", "==", "!="), ("constant", "0", "1"),
    }  # fmt: skip
    for gpu, hidden in ((False, "if (a.images == 5) return;"), (True, "if (a.images == 4 && x) return 1;")):
        assert [CUDA[start:end].strip() for start, end in not_compiled(CUDA, gpu)] == [hidden]
    assert ("constant", "5", "5 + 1") in applied(CUDA, cuda_edits(CUDA, gpu=True))
    assert not any("3" in old or old == "5" for _, old, _ in found), (
        "comments, occupancy and what only a GPU compiles are left alone"
    )


def test_mutants_can_be_injected():
    layers = ("api", "reference", "accelerated")
    assert {mutant.layer for mutant in drawn(30, 5)} <= set(layers)
    mutants = [mutant for layer in layers for mutant in drawn(10, 5, (layer,))]
    assert [mutant.layer for mutant in mutants] == [layer for layer in layers for _ in range(10)]
    assert len(set(mutants)) == 30 and mutants[:10] == drawn(10, 5, layers[:1])
    for mutant in mutants:
        text = injected.source_of(mutant.file).read_text()
        assert mutant.applies_to(text) and mutant.cases
        if mutant.file.endswith(".py"):
            compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
