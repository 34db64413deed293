"""Test how a program is observed: which calls are judged, what a sample notices, how findings are grouped."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.api.document import functions
from dualdnn.api.operations import parse
from dualdnn.conformance.command_line import main
from dualdnn.conformance.programs import findings, observer, picture, portion
from dualdnn.conformance.programs.findings import Findings, erratum
from dualdnn.conformance.programs.portion import Portion
from dualdnn.conformance.programs.watch import Watch
from dualdnn.conformance.trial import prepare
from dualdnn.reference import run
from dualdnn.reference.sampled import Sample

# Gaps of 20 elements separate the channels.
DIMS = (4, 16, 40, 32)
STRIDES = (20800, 1300, 32, 1)
ACTIVATION = (
    "ActivationForward(activation=ActivationSpec(mode=CUDNN_ACTIVATION_{}, relu_nan=CUDNN_PROPAGATE_NAN, coefficient=1.0), alpha=1.0,"
    f" beta=0.0, x=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims={DIMS}, strides={STRIDES}),"
    f" y=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims={DIMS}, strides={STRIDES}))"
)


def test_memory_whose_size_the_library_decides_overlaps_no_other_operand():
    """NVIDIA's reserve space of a recurrent network may be smaller than ours, with dx right behind it."""
    parameters = {p.name: p for p in functions()["cudnnRNNBackwardData_v8"].arguments}
    memory = SimpleNamespace(read=lambda address, count: np.full(count, address % 251, np.uint8))
    reserve = observer.argument(parameters["reserveSpace"], 4096, memory)
    assert reserve.address >= observer.AMPLE and reserve.address % 256 == 4096 % 256
    assert reserve.to_host(np.uint8, 2).tolist() == [4096 % 251] * 2
    assert observer.argument(parameters["dx"], 4096, memory) == 4096
    assert observer.argument(parameters["reserveSpace"], 0, memory) == 0
    assert observer.argument(parameters["reserveSpaceSize"], 1120, memory) == observer.AMPLE


class Device:
    """Serve memory by address, and count the bytes that are copied."""

    def __init__(self, operation):
        self.memory, self.addresses, self.copied = prepare(operation, "normal", 1), {}, 0
        for number, name in enumerate(self.memory):
            self.addresses[name] = number << 32

    def read(self, address, count):
        self.copied += count
        name = next(n for n, first in self.addresses.items() if 0 <= address - first < 1 << 32)
        begin = address - self.addresses[name]
        return self.memory[name][begin : begin + count].copy()

    def floats(self, name):
        return self.memory[name].view(np.float32)

    @property
    def operands(self):
        return {name: (self.addresses[name], array.size) for name, array in self.memory.items()}


def watched(damage, mode="TANH", spots=200):
    operation = parse(ACTIVATION.format(mode))
    device = Device(operation)
    watch = Watch(operation, device.operands, device.read, spots, 1)
    run(operation, device.memory)
    damage(device)
    return watch.finish(), watch, device


def test_right_results_are_right():
    problems, watch, _ = watched(lambda device: None)
    assert problems == [] and len(watch.said.ratios) == 200 and 0 < watch.said.rms <= watch.said.worst < 1


DAMAGES = {
    "every element": (lambda d: d.floats("y").__imul__(1.001), "sampled elements are wrong"),
    "one is NaN": (
        lambda d: d.floats("y").__setitem__(STRIDES[1] * 7 + 11, np.nan),
        "1 of 201 sampled elements are wrong",
    ),
    "an input": (lambda d: d.memory["x"].__setitem__(slice(0, None, 4096), 77), "x: "),
    "a gap": (lambda d: d.memory["y"].__setitem__(4 * (STRIDES[1] - 3), 7), "y: 1 bytes in gaps"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_noticed(name):
    damage, said = DAMAGES[name]
    problems, _, _ = watched(damage)
    assert len(problems) == 1 and said in problems[0], problems


def test_a_sample_reads_what_it_needs():
    operation = parse(ACTIVATION.format("RELU").replace(str(STRIDES), "(20480, 1280, 32, 1)"))
    device = Device(operation)
    Watch(operation, device.operands, device.read, 1, 1)
    assert device.copied == 2**16


def test_each_nth_call_of_a_configuration_is_judged():
    chosen = Portion(every=3)
    assert [chosen.left_out("a", "") for _ in range(4)] == ["", *["one call of 3 is judged"] * 2, ""]
    assert chosen.left_out("b", "") == ""


def test_a_budget_is_shared_by_all_configurations(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(portion.time, "monotonic", lambda: now[0])
    chosen = Portion(budget=0.25)
    for _ in range(400):
        for name in ("first", "second", "third"):
            now[0] += 1
            if not chosen.left_out(name, ""):
                now[0] += 1
                chosen.spend(1)
    assert 0.2 < chosen.spent / now[0] < 0.27
    assert max(chosen.chosen.values()) < 1.2 * min(chosen.chosen.values())


def test_samples_are_counted_and_said(tmp_path):
    found = Findings(Path("lib"))
    row = found.row("cudnnActivationForward", "ActivationForward()")
    row.calls, row.judged, row.worst = 3, 2, 0.5
    for ratios in ([0.5, -0.5], [0.1, 0.1]):
        row.take(Sample(ratios))
    assert row.elements == 4 and row.rms == pytest.approx(0.52**0.5 / 2) and row.bias == pytest.approx(0.05)
    text = found.text()
    assert "2 of 3 calls, 4 elements, worst error 0.5 of its bound, rms 0.361, bias 0.05" in text
    assert 'dualdnn replay "ActivationForward()"' in text
    found.write(tmp_path)
    assert '"sampled_elements": 4' in (tmp_path / "observed.json").read_text()


def test_the_picture_has_a_bar_for_each_size_of_error(tmp_path):
    found = Findings(Path("lib"))
    for function, ratios in (
        ("cudnnConvolutionForward", [0.0, 2.0**-9, 0.3, -0.4, 1.0]),
        ("cudnnConvolutionBackwardData", []),
        ("cudnnConvolutionBackwardFilter", [0.6]),
    ):
        found.row(function, "X(x=TensorSpec(dims=(2, 3, 4), strides=(12, 4, 1)), tag='<b>')").take(Sample(ratios))
    row = found.row("cudnnConvolutionBackwardFilter", "Y()")
    row.take(Sample([], [SimpleNamespace(ratio=float("nan"))]))
    row.wrong = 1
    found.write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert [picture.bin_of(ratio) for ratio in (0.0, 2.0**-8, 2.0**-7, 0.3, 0.5, -1.0, 1.1)] == [0, 0, 1, 7, 7, 8, 9]
    parts = dict(zip(("forward", "data", "weights"), page.split("<h2>")[1:4], strict=True))
    assert parts["forward"].count("<rect") == parts["forward"].count("<title>") == picture.BINS
    assert [f"{label}: {count}" in parts["forward"] for label, count in zip(picture.LABELS, [2, 0, 0, 0, 0, 0, 0, 2, 1, 0], strict=True)] == [True] * 10  # fmt: skip
    assert "ConvolutionForward 2x3x4" in parts["forward"] and "<b>" not in page
    assert "<rect" not in parts["data"] and "gradients of data" in parts["data"]
    assert "beyond the bound: 1" in parts["weights"] and "<tr class=wrong>" in parts["weights"]


def test_a_call_on_a_capturing_stream_is_not_waited_for():
    memory, waited = observer.Memory(), []

    def is_capturing(stream, status):
        status._obj.value = stream.value == 7
        return 906 if stream.value is None else 0  # The default stream waits for the capturing stream.

    memory.driver = SimpleNamespace(cuStreamIsCapturing=is_capturing, cuCtxSynchronize=lambda: waited.append(1))
    memory.synchronize(5)
    for stream in (7, 0):
        with pytest.raises(observer.NotJudged, match="its stream is capturing"):
            memory.synchronize(stream)
    assert len(waited) == 1


def test_a_declared_difference_of_a_status_has_its_erratum():
    declared = next(
        (d, r) for d in findings.DIFFERENCES for r in d.recorded
        if r.kind == "status" and r.when is None and r.expects is None and r.clauses != ("*",) and "*" not in r.functions[0] + r.ours + r.theirs + r.clauses[0]
    )  # fmt: skip
    _, pattern = declared
    given = (pattern.functions[0], pattern.ours, pattern.theirs, pattern.clauses[0])
    assert erratum(*given).startswith(" [docs/errata.md, ")
    assert erratum(*given[:3], "cudnnNothing/c99") == ""


def test_the_line_of_a_finding_makes_the_call_again(capsys):
    line = findings.replayed(
        ACTIVATION.format("TANH").replace(str(DIMS), "(1, 2, 4, 3)").replace(str(STRIDES), "(24, 12, 3, 1)")
    )
    assert main([*shlex.split(line)[1:], "--subject", "reference"]) == 0
    assert "reference: passed" in capsys.readouterr().out
