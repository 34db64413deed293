"""Test pinned operations: lines with the same id form one case, and the reducer keeps each operation that is needed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.api.operations import TensorSpec, parse
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance import corpus
from dualdnn.conformance.corpus import FOLDER, cases
from dualdnn.conformance.corpus.collecting import module_of
from dualdnn.conformance.corpus.reducing import Planner, chosen, main, shown_by
from dualdnn.conformance.inputs import values
from dualdnn.conformance.suite.files import case_files

TENSOR = "TensorSpec(data_type=CUDNN_DATA_{}, dims=(2, 3, 4, 5), strides=(60, 20, 5, 1))"
SCALE = f"ScaleTensor(alpha={{}}, y={TENSOR})"


def line(name, operation, **more):
    return json.dumps({"id": name, "why": "It shows a factor.", "operations": [operation]} | more)


@pytest.fixture
def file(tmp_path):
    def written(*lines):
        path = tmp_path / "tensor_arithmetic.jsonl"
        path.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
        return path

    return written


def test_lines_of_one_id_are_one_case(file, monkeypatch):
    ran = []
    module = module_of(file(
        line("test_scale[a]", SCALE.format(0.5, "FLOAT"), clauses=["cudnnScaleTensor/c01"], inputs="wide"),
        line("test_scale[a]", SCALE.format(2.0, "FLOAT"), seed=3, offsets={"y": 4}),
        line("test_scale[b]", SCALE.format(1.0, "HALF")),
    ))  # fmt: skip
    (parametrized,) = module.test_scale.pytestmark
    shown = {row.values: [mark.args for mark in row.marks] for row in parametrized.args[1]}
    assert shown == {("a",): [("cudnnScaleTensor/c01",)], ("b",): []}
    module.test_scale(lambda *steps, **how: ran.append((steps, how)), SimpleNamespace(), "a")
    assert [(step.operation.alpha, step.inputs, how["seed"], how["offsets"]) for (step,), how in ran] == [
        (0.5, "wide", 0, {}),
        (2.0, "normal", 3, {"y": 4}),
    ]


def test_each_step_of_a_chain_has_its_own_memory_and_inputs(file):
    ran = []
    each = [{"inputs": "wide"}, {"names": {"y": "z"}, "inputs": {"y": "special"}}]
    scale = json.loads(line("test_scale", "", operations=[SCALE.format(0.5, "FLOAT")] * 2, each=each))
    module_of(file(json.dumps(scale))).test_scale(lambda *steps, **how: ran.extend(steps), SimpleNamespace(), "")
    assert [(step.names, step.inputs) for step in ran] == [({}, "wide"), ({"y": "z"}, {"y": "special"})]


def test_a_line_runs_once_with_each_of_its_offsets_planned_for_its_device(file):
    ran, device = [], SimpleNamespace(kind="emulated", multiprocessors=1)
    handle = SimpleNamespace(backend=SimpleNamespace(device=device, plans={}), answers={})
    module = module_of(
        file(line("test_scale", SCALE.format(0.5, "FLOAT"), turns=[{"y": 4}, {"y": 8}], multiprocessors=132))
    )
    module.test_scale(
        lambda *_, offsets, **__: ran.append((offsets, device.multiprocessors)), SimpleNamespace(handle=handle), ""
    )
    assert ran == [({"y": 4}, 132), ({"y": 8}, 132)] and device.multiprocessors == 1


def test_inputs_may_change_at_some_positions():
    """Positions count elements in row-major order. A multiplied value is rounded once."""
    spec = TensorSpec.packed(FLOAT, (1, 2, 1, 4))
    plain, changed = (
        values(spec, kind, np.random.default_rng(3)).ravel() for kind in ("wide", "wide, 3=nan, 1::5=-inf, ::4*300")
    )
    due = plain.copy()
    due[3], due[1::5], due[::4] = np.nan, -np.inf, plain[::4] * np.float32(300)
    np.testing.assert_array_equal(changed, due)
    with pytest.raises(ValueError, match="a change of inputs is '3'"):
        values(spec, "normal, 3", np.random.default_rng(3))


def test_operations_found_by_a_fuzzer_make_no_case(file):
    path = file(line("tensor_arithmetic-1", SCALE.format(0.5, "FLOAT"), family="tensor_arithmetic"))
    assert cases(path) == {} and not hasattr(module_of(path), "test_scale")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_line_says_why_and_is_there_once(path):
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    assert all(len(one["why"].split()) > 2 for one in lines)
    assert len({json.dumps(one) for one in lines}) == len(lines)
    assert path in case_files()
    known = {"id", "why", "clauses", "ours", "workspace", "each", "turns", "multiprocessors", *corpus.FIELDS}
    assert [one["id"] for one in lines if not {"id", "why", "operations"} <= one.keys() <= known] == []


def test_the_reducer_keeps_what_only_one_shows():
    shown = {"a": frozenset("xy"), "b": frozenset("yz"), "c": frozenset("xz"), "d": frozenset("x"), "e": frozenset("w")}
    assert chosen(shown) == ["a", "b", "e"]
    assert chosen(shown, ["d"]) == ["d", "b", "e"]


def test_operations_show_their_kernels_types_and_factors():
    planner = Planner()
    half, single = (shown_by(planner, [parse(SCALE.format(0.5, kind))], "normal") for kind in ("HALF", "FLOAT"))
    assert {one[1] for one in half if isinstance(one, tuple) and one[0] == "solver"}
    assert any(str(one[0]).endswith(".cu") for one in half - single), "a kernel of another type"
    assert single != shown_by(planner, [parse(SCALE.format(1.0, "FLOAT"))], "normal")
    assert single < shown_by(planner, [parse(SCALE.format(0.5, "FLOAT"))], "normal", [("offsets", "y")])


def test_a_line_that_shows_nothing_new_is_reported(file, capsys):
    lines = [line(f"test_scale[{i}]", SCALE.format(factor, "FLOAT")) for i, factor in enumerate((0.5, 0.25, 1.0))]
    assert main([str(file(*lines))]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("2 of 3 entries show all") and len(told) == 2 and told[1].startswith("superfluous")
