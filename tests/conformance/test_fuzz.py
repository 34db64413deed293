"""Test that ``dualdnn fuzz`` finds and shrinks faults, and goes on when workers die."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.emulated.library import EmulatedLibrary
from dualdnn.api.cudnn import softmax
from dualdnn.conformance import corpus
from dualdnn.conformance.command_line import main
from dualdnn.conformance.domains import PROFILES, Drawn
from dualdnn.conformance.fuzz import judging, picture, pool
from dualdnn.conformance.fuzz.command import Run, read_ledger, still_failing, write_ledger
from dualdnn.conformance.fuzz.entries import Entry, parse_entry
from dualdnn.conformance.fuzz.judging import CELL, Finding, Judge, Key
from dualdnn.conformance.fuzz.worker import Orders, Worker
from dualdnn.conformance.progress import Bar
from dualdnn.conformance.subjects import NotRunnable, open_subject

TENSOR = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 3, 4, 5), strides=(60, 20, 5, 1))"
LINE = json.dumps(
    {"family": "tensor_arithmetic", "operations": [f"ScaleTensor(alpha=0.5, y={TENSOR})"], "inputs": "wide", "seed": 4}
)
ORDERS = Orders(("reference",), ("activation",), ("small",), "all", 1, 0.0, 60)


class Messages(list):
    def send(self, message):
        self.append(message)


@pytest.fixture
def wrong_tanh(monkeypatch):
    """Make the judge's tanh wrong by a thousandth, so that the emulated device seems to be wrong."""
    from dualdnn.reference import activation

    mode = activation.Mode.CUDNN_ACTIVATION_TANH
    function, roundings = activation.FORWARD[mode]
    monkeypatch.setitem(activation.FORWARD, mode, (lambda x, a: function(x, a) * 1.001, roundings))


def test_a_fault_is_found_once_and_made_simple(wrong_tanh):
    sent = Messages()
    orders = replace(ORDERS, subjects=("accelerated:emulated",), count=100)
    Worker(orders, sent, Judge([open_subject("accelerated:emulated")])).draw()
    found = [value for kind, value in sent if kind == "found"]
    keys = {finding.key for finding in found}
    assert found and len(keys) == len(found)
    assert {key.operation for key in keys} == {"ActivationForward"} and {key.family for key in keys} == {"activation"}
    for finding in found:
        assert "TANH" in str(finding.entry)
        assert finding.entry.drawn.operation.x.count <= 64  # The profile allows 1,500 elements.
        assert Judge([open_subject("accelerated:emulated")]).examine(finding.entry).key == finding.key


def test_a_call_that_accepts_what_a_table_refuses_is_found_again_by_its_entry(monkeypatch):
    sent = Messages()
    monkeypatch.setattr(softmax, "same_strides", lambda clause, **tensors: None)
    Worker(replace(ORDERS, families=("softmax",), count=400), sent, Judge([open_subject("reference")])).draw()
    found = [value for kind, value in sent if kind == "found"]
    assert found and {finding.key.what for finding in found} == {"refusals"}
    for finding in found:
        assert Judge([open_subject("reference")]).examine(parse_entry(str(finding.entry))).key == finding.key
        with pytest.raises(ValueError, match="conformance/refusals"):
            corpus.pin(finding.entry, "a change that is accepted")


def test_the_same_seed_draws_the_same(capsys):
    drawn = []
    for _ in range(2):
        sent = Messages()
        Worker(ORDERS, sent, Judge([open_subject("reference")])).draw()
        drawn.append([value for kind, value in sent if kind == "began"])
    assert drawn[0] == drawn[1] and len(set(drawn[0])) > 25


def dies(orders, connection):
    """Run a worker whose first operation ends its process. The worker that goes on after it does not die."""
    connection.send(("began", LINE))
    if not orders.known:
        os._exit(7)
    connection.send(("judged", 1))
    connection.send(("ended", ({}, [])))


def hangs(orders, connection):
    connection.send(("began", LINE))
    if not orders.known:
        time.sleep(600)
    connection.send(("ended", ({}, [])))


def loses(orders, connection):
    """Run a worker whose device allocates nothing after a first operation, which is wrong."""
    subject, entry = open_subject("accelerated:emulated"), parse_entry(LINE)
    if not orders.known:
        AcceleratedBackend("emulated").device.allocate = None
    finding = Finding(Key("", "", subject.name, "", "DeviceError"), "", entry)
    judge = SimpleNamespace(subjects=[subject], unasked=0, examine=lambda _: finding)
    Worker(orders, connection, judge).examine(entry)
    connection.send(("ended", ({}, [])))


@pytest.mark.parametrize(
    "process, said", [(dies, pool.DIED), (hangs, pool.HUNG), (loses, "ended its device: DeviceError")]
)
def test_an_operation_that_ends_or_stops_its_process_is_a_finding(monkeypatch, process, said):
    """The other operations go on."""
    monkeypatch.setattr(pool, "work", process)
    monkeypatch.setattr(pool, "HANG", 1.0 if said == pool.HUNG else 60.0)
    received = []
    pool.run([ORDERS], lambda kind, value: received.append((kind, value)), lambda: None)
    (died,) = [value for kind, value in received if kind == "died"]
    assert died.key.what == said and str(died.entry) == str(parse_entry(LINE))
    assert received[-1][0] == "ended"


@pytest.mark.parametrize("text, message", [
    ("nonsense", "not an entry"),
    ("{}", "family and operations"),
    ('{"family": "none", "operations": []}', "family is 'none'"),
    ('{"family": "pooling", "operations": ["5"]}', "expected texts of operations"),
    ('{"family": "pooling", "operations": [], "more": 1}', "family and operations"),
    (LINE.replace("}", ', "refused": "softmax/none"}'), "refused is 'softmax/none'"),
])  # fmt: skip
def test_an_invalid_entry_is_refused(text, message, capsys):
    with pytest.raises(ValueError, match=message):
        parse_entry(text)
    assert main(["fuzz", "--again", text]) == 2
    assert message in capsys.readouterr().err


def test_one_entry_again(capsys, wrong_tanh):
    assert main(["fuzz", "--subject", "accelerated:emulated", "--again", LINE]) == 0
    text = f"ActivationForward(activation=ActivationSpec(mode=CUDNN_ACTIVATION_TANH, relu_nan=CUDNN_PROPAGATE_NAN, coefficient=0.0), alpha=1.0, beta=0.0, x={TENSOR}, y={TENSOR})"
    bad = json.dumps({"family": "activation", "operations": [text]})
    assert main(["fuzz", "--subject", "accelerated:emulated", "--again", bad]) == 1
    assert "wrong elements" in capsys.readouterr().out


def test_known_findings_must_still_fail(tmp_path):
    """A known finding that passes is reported, and a damaged ledger is an error."""
    entry = parse_entry(LINE)
    key = Key("tensor_arithmetic", "ScaleTensor", "reference", "", "wrong y: values")
    path = tmp_path / "known.jsonl"
    assert write_ledger(path, [Finding(key, "", entry)]) == 1
    known = read_ledger(path)
    assert known == {key: entry}
    assert still_failing(Run(Bar("operations")), ORDERS, known) == [key]
    path.write_text('{"key": 5}\n')
    with pytest.raises(ValueError, match="line 1"):
        read_ledger(path)


def test_a_pinned_entry_is_a_case(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "FOLDER", tmp_path / "corpus")
    entry = parse_entry(LINE)
    assert corpus.pin(entry, "The factor was applied twice.") == "tensor_arithmetic-1"
    assert corpus.pinned() == {"tensor_arithmetic-1": entry}
    with pytest.raises(ValueError, match="pinned already, as tensor_arithmetic-1"):
        corpus.pin(entry, "The factor was applied twice.")
    with pytest.raises(ValueError, match="say in a sentence"):
        corpus.pin(Entry("tensor_arithmetic", Drawn(entry.drawn.steps)), "why")


def test_the_command_reports_what_it_covered(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = [
        "fuzz",
        "--subject",
        "reference",
        "-k",
        "activation",
        "--profile",
        "special",
        "--count",
        "12",
        "--jobs",
        "1",
    ]
    assert main([*arguments, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "12 operations judged" in told and "0 new findings" in told
    covered = json.loads((out / "coverage.json").read_text())["activation"]
    assert sum(covered["operation"].values()) >= 12 and set(covered["addresses"]) == {"aligned"}
    page = (out / "coverage.html").read_text()
    for cell, count in covered["elements by types"].items():
        row = (
            page[page.index("elements by types") :]
            .partition(f"<tr><th>{cell.partition(CELL)[0]}<")[2]
            .partition("<tr>")[0]
        )
        assert f">{count:,}" in row
    assert main([*arguments[:3], "-k", "nothing"]) == 2
    assert "'nothing' is not one of pooling" in capsys.readouterr().err


def test_the_coverage_has_types_layouts_and_sizes_of_each_solver_and_kernel():
    """Each operation counts once in each table; the page names the kernels that never ran."""
    judge = Judge([open_subject("accelerated:emulated")])
    assert judge.examine(parse_entry(LINE)) is None
    tables: dict[str, dict[str, int]] = {}
    for (_, fact, value), count in judge.facts.items():
        tables.setdefault(fact, {})[value] = count
    (kernel,), (solver,) = (judge.used["tensor_arithmetic"].lists()[name] for name in ("kernels", "solvers"))
    cells = {"types": "FLOAT", "layouts": "rows", "elements": "up to 1,000"}
    for row, name in (("solver", solver), ("kernel", kernel)):
        for column, cell in cells.items():
            assert tables[f"{column} by {row}"] == {f"{name}{CELL}{cell}": 1}
    assert not any("algorithm" in table for table in tables)
    page = picture.page({"tensor_arithmetic": {**tables, "solvers missing": []}}, ["a_kernel"])
    assert all(f"<caption>{column} by {row}</caption>" in page for column in cells for row in ("solver", "kernel"))
    assert "Kernels that never ran: <span class=never>a_kernel</span>" in page and "Solvers that" not in page


def test_an_output_that_is_suspect_by_chance_is_not_a_finding(monkeypatch):
    """A suspicion under one seed of four is chance, and under all of them it is a fault."""
    seeds = []

    def attempt(caller, steps, number, before, offsets):
        seeds.append(number)
        suspicions = ["y: biased"] if number in suspect else []
        verdict = SimpleNamespace(suspicions=suspicions, worst=None)
        return SimpleNamespace(passed=True, whole=[SimpleNamespace(verdict=verdict)], verdict=verdict)

    monkeypatch.setattr(judging, "attempt_chain", attempt)
    suspect = {4}
    assert Judge([open_subject("reference")]).examine(parse_entry(LINE)) is None
    suspect = {4, 5, 6, 7}
    assert Judge([open_subject("reference")]).examine(parse_entry(LINE)).key.what == "suspect y"
    assert seeds == [4, 5, 4, 5, 6, 7]


def test_an_operation_that_no_subject_can_be_asked_about_is_not_judged(monkeypatch):
    """A library without the calls ended a run with status 0."""

    def lacks(*_):
        raise NotRunnable("it does not export the call")

    monkeypatch.setattr(judging, "sized", lacks)
    sent, judge = Messages(), Judge([open_subject("reference")])
    assert Worker(ORDERS, sent, judge).examine(parse_entry(LINE)) is None
    assert ("judged", 0) in sent and ("judged", 1) not in sent


def found_in(family, count, seed=1):
    """Return the findings of drawn operations of a family on the reference."""
    sent = Messages()
    orders = replace(ORDERS, families=(family,), profiles=tuple(PROFILES), count=count, seed=seed)
    Worker(orders, sent, Judge([open_subject("reference")])).draw()
    return [value for kind, value in sent if kind == "found"]


def test_a_changed_call_that_is_accepted_is_judged_by_its_result(monkeypatch):
    """Elements of an output that share memory cannot all be right."""
    monkeypatch.setattr(softmax, "writable_layout", lambda **tensors: None)
    whats = {finding.key.what.partition(":")[0] for finding in found_in("softmax", 600)}
    assert whats & {"wrong y", "wrong dx"}


MISTAKES = {
    "a size that is not limited": ("tensor_descriptors", "TWO_GIGA", 2**70, "activation"),
    "a padding that is not read": ("pooling", "Pooling2dParameters", None, "pooling"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_descriptors_hold_is_checked(monkeypatch, mistake):
    module, name, value, family = MISTAKES[mistake]
    home = import_module(f"dualdnn.api.cudnn.{module}")
    made = value or (lambda *values: (*values[:4], 0, *values[5:]))
    monkeypatch.setattr(home, name, made)
    found = found_in(family, 600)
    assert found and {finding.key.what for finding in found} == {"descriptors"}
    for finding in found:
        assert Judge([open_subject("reference")]).examine(parse_entry(str(finding.entry))).key == finding.key


def test_races_are_reported_in_every_eighth_batch(monkeypatch):
    """The kernels are others there, and the device has its own again behind them."""
    seen, device = [], open_device("emulated")
    launch = EmulatedLibrary.launch
    monkeypatch.setattr(
        EmulatedLibrary, "launch", lambda *arguments: seen.append(device.architecture) or launch(*arguments)
    )
    entry = parse_entry(LINE)
    judge = Judge([open_subject("accelerated:emulated")])
    for seed in (6, 7, 8):
        assert judge.examine(replace(entry, seed=seed)) is None
    assert seen == ["emulated", "emulated-races", "emulated"]
