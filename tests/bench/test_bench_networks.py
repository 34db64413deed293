"""Test that the benchmark times layers of networks and drawn layers, and adds up the steps of a network."""

from __future__ import annotations

import json
import os

import pytest
from dualdnn.api import cudnn
from dualdnn.conformance.bench import networks as bench_networks
from dualdnn.conformance.bench.command import family_lines
from dualdnn.conformance.bench.drawn import MAX_BYTES, MAX_FLOPS, MIN_BYTES, OTHER_KINDS, drawn, drawn_rows
from dualdnn.conformance.bench.layers import Layer, rows_of
from dualdnn.conformance.bench.networks import Network, network_rows, networks, steps
from dualdnn.conformance.calls import Caller, sized
from dualdnn.conformance.command_line import main

TASKS = {"classification", "detection", "segmentation", "generation", "speech", "video", "language"}


def test_forty_networks_of_seven_tasks_are_timed():
    found = networks()
    assert len(found) >= 40 and {network.task for network in found} == TASKS
    assert len({network.name for network in found}) == len(found)


def test_a_row_name_stands_for_one_operation():
    operations = {}
    for network in networks():
        for count, row in network.rows():
            assert count > 0 and operations.setdefault(row.name, row.operation) == row.operation
    assert len(operations) == len(network_rows())


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gradients_of_volumes_have_a_quick_algorithm(layout):
    """A volume's filter gradient has ALGO_1 in NHWC alone, and ALGO_0 has a slow kernel of its own."""
    handle = cudnn.cudnnCreate(backend="reference")
    one = (1, 1, 1)
    layer = Layer("convolution", (2, 4, 5, 6, 7), (8, 4, 3, 3, 3), stride=one, padding=one, dilation=one)
    for row in rows_of(layer, "half", layout):
        if row.family.endswith("gradient"):
            assert sized(Caller(cudnn, handle), row.operation).algo.name.endswith(("_1", "_3"))


def test_a_layer_survives_its_entry():
    layers = {layer for network in networks() for _, layer in network.layers}
    assert {Layer.of(json.loads(json.dumps(layer.entry()))) for layer in layers} == layers


def test_an_unknown_kind_of_layer_is_refused():
    with pytest.raises(ValueError, match="no kind of layer 'swish'"):
        list(rows_of(Layer("swish", (1, 2, 3, 4)), "half", "NHWC"))


def test_a_step_is_the_sum_over_its_calls(monkeypatch):
    """A call's time is multiplied by its count, the faster baseline is taken, and calls without both times are missing."""
    layer = Layer("relu", (2, 8, 4, 4))
    network = Network("two", "classification", "half", "NHWC", ((3, layer),))
    monkeypatch.setattr(bench_networks, "networks", lambda: (network,))
    forward, backward = (row.name for _, row in network.rows())
    timed = {"name": forward, "ours_us": 2.0, "vendor_us": 5.0, "graph_us": 1.0}
    (step,) = steps([timed])
    assert (step.ours, step.baseline, step.missing, step.speedup) == (6.0, 3.0, 3, 0.5)
    assert step.worst == ((3.0, forward),)
    (step,) = steps([timed, {"name": backward, "ours_us": 1.0, "vendor_us": 4.0}])
    assert (step.ours, step.baseline, step.missing) == (9.0, 15.0, 0)


def test_a_seed_draws_the_same_layers_again():
    first, again, other = (list(drawn(40, seed)) for seed in (3, 3, 4))
    assert first == again and first != other


def test_every_family_is_drawn_within_its_limits():
    layers = list(drawn(400, 11))
    assert {layer.kind for layer, _, _ in layers} == {"convolution", *OTHER_KINDS}
    convolutions = [layer for layer, _, _ in layers if layer.kind == "convolution"]
    assert {len(layer.x) for layer in convolutions} == {4, 5} and any(
        layer.groups == layer.x[1] > 1 for layer in convolutions
    )
    for row in drawn_rows(100, 11):
        assert MIN_BYTES <= row.nbytes <= MAX_BYTES and row.flops <= MAX_FLOPS


def test_a_family_line_gives_the_shares_below_its_baseline():
    results = [{"family": "pooling", "speedup": speedup} for speedup in (0.4, 0.7, 1.0, 2.0)]
    (line, _) = family_lines(results)
    assert "4 rows: geometric mean 0.87, 50.0% below 0.8, 25.0% below 0.5, least 0.400" in line


def test_shards_are_measured_apart_and_reported_together(tmp_path, capsys, monkeypatch):
    """Every row is in one shard, and files of two lists are not reported as one."""
    for name in [name for name in os.environ if "XDIST" in name]:  # pytest-benchmark measures nothing in a parallel run
        monkeypatch.delenv(name)
    for part in (1, 2):
        options = ["--drawn", "6", "--seed", "4", "-k", "relu", "--shard", f"{part}/2", "--device", "emulated"]
        assert main(["bench", *options, "--limit", "1", "--out", str(tmp_path / str(part))]) == 0
    files = [str(tmp_path / part / "benchmarks.json") for part in "12"]
    assert main(["bench", "--from", *files, "--out", str(tmp_path / "both")]) == 0
    together = json.loads((tmp_path / "both/benchmarks.json").read_text())
    assert together["rows_of"] == "6 drawn, seed 4" and len({row["name"] for row in together["rows"]}) == 2
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**together, "rows_of": "networks"}))
    assert main(["bench", "--from", files[0], str(other), "--out", str(tmp_path / "no")]) == 2
    assert "the files differ in rows_of" in capsys.readouterr().err


@pytest.mark.parametrize("shard", ["0/2", "3/2", "two", "1/"])
def test_a_shard_that_does_not_exist_is_refused(shard, capsys):
    assert main(["bench", "--drawn", "2", "--seed", "1", "--shard", shard, "--device", "emulated"]) == 2
    assert f"--shard is {shard!r}, not I/N" in capsys.readouterr().err
