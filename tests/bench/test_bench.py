"""Test that the benchmark command runs on the emulated device."""

from __future__ import annotations

import contextlib
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.accelerated.runtime import timing
from dualdnn.accelerated.runtime.device import Device
from dualdnn.accelerated.runtime.timing import Clock
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.conformance.bench.ceilings import Ceilings
from dualdnn.conformance.bench.command import small_rows_first, summary
from dualdnn.conformance.bench.designed import OnChip, designed_bytes
from dualdnn.conformance.bench.measure import STREAM_CALLS, Bench, algorithms_of, with_floor
from dualdnn.conformance.bench.rows import rows
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import Report, Subject, read_json, write_report


def test_rows_are_distinct_and_count_their_bytes():
    every = list(rows())
    assert len({row.name for row in every}) == len(every) > 400
    relu = next(row for row in every if row.name == "activation ReLU backward 64x256x56x56 float NCHW")
    assert relu.nbytes == 3 * 4 * 64 * 256 * 56 * 56  # The call reads x and dy and writes dx. It does not need y.
    fill = next(row for row in every if row.name == "set tensor 8x64x14x14 half NHWC")
    assert fill.nbytes == 2 * 8 * 64 * 14 * 14


def test_bytes_that_the_design_moves():
    """Data that do not stay on the chip are read twice. NCHW keeps data in shared memory, NHWC also in registers."""
    chip = OnChip(of_shared=4 * 64 * 56 * 56, of_all=1 << 20)
    by_name = {row.name: row for row in rows("64x256x56x56")}
    half, full = (by_name[f"batch normalization training 64x256x56x56 {kind} NCHW"] for kind in ("half", "float"))
    assert designed_bytes(half, chip) == half.nbytes and designed_bytes(full, chip) == full.nbytes
    tensor = 4 * 64 * 256 * 56 * 56
    backward = by_name["batch normalization backward 64x256x56x56 float NCHW"]
    assert designed_bytes(backward, chip) == backward.nbytes + tensor  # Shared memory keeps half of x and dy.
    columns = by_name["batch normalization training 64x256x56x56 float NHWC"]
    assert designed_bytes(columns, chip) == columns.nbytes + tensor - (1 << 20)
    inference = by_name["batch normalization inference 64x256x56x56 float NHWC"]
    assert designed_bytes(inference, chip) == inference.nbytes
    result = {**dict.fromkeys(("vendor_us", "graph_us", "pace")), "bytes": 75e6, "design_bytes": 100e6, "flops": 0}
    shown = with_floor({**result, "ours_us": 50.0, "design_copy_us": 40.0}, Ceilings(4e12, 1e-7))
    assert shown["of_design"] == pytest.approx(0.8)
    told = summary([{**shown, "name": "a row", "family": "pooling", "wall_s": 0.0}])
    assert (
        "1 of 1 large packed rows reach 75% of a copy of the bytes that the design moves, 0 of one of the least" in told
    )


def test_small_rows_come_first():
    every = list(rows())
    ordered = small_rows_first(every)
    small = [row.nbytes < 2e6 and not row.flops for row in ordered]
    assert small == sorted(small, reverse=True) and 100 < sum(small) < len(every)
    assert [row.name for row in ordered if row.flops] == [row.name for row in every if row.flops]


def test_a_sum_is_compared_with_a_copy_of_as_many_bytes():
    """The copy has the strides and gaps of the sum. It reads half of the images and writes the same number of bytes."""
    for row in rows("bias gradient 8x64x16x56x56"):
        copied, dy = row.copy, row.operation.dy
        assert copied.x == copied.y and copied.x.strides == dy.strides and 2 * copied.x.count == dy.count
    assert not any(row.copy for row in rows("reduce") if row.family.startswith("reduce"))
    sums = {
        "bytes": 8000,
        "flops": 0,
        "pace": None,
        "ours_us": 4.0,
        "vendor_us": None,
        "graph_us": None,
        "copy_us": 3.0,
    }
    assert with_floor(sums, Ceilings(1e12, 1e-6))["of_copy"] == 0.75


def test_the_floor_is_bytes_or_a_launch():
    result = {"bytes": 4_000_000, "flops": 0, "pace": None, "ours_us": 2.0, "vendor_us": 3.0, "graph_us": None}
    assert with_floor(result, Ceilings(4e12, 1e-7))["fraction"] == pytest.approx(0.5)
    assert with_floor(result, Ceilings(4e12, 1e-7))["speedup"] == pytest.approx(1.5)
    assert with_floor(result, Ceilings(4e12, 5e-6))["floor_us"] == pytest.approx(5.0)


def test_small_rows_are_counted_in_launches():
    result = {
        "bytes": 4,
        "flops": 0,
        "pace": None,
        "ours_us": 1.0,
        "vendor_us": 3.0,
        "graph_us": None,
        "ours_stream_us": 2.0,
        "ours_alone_us": 6.0,
        "launch_us": 0.5,
        "launch_stream_us": 1.0,
        "launch_alone_us": 4.0,
        "family": "activation",
    }
    ceilings = Ceilings(4e12, 1e-6, launch_stream=2e-6, launch_alone=3e-6)  # timed when the run begins
    assert with_floor(result, ceilings)["launches"] == pytest.approx({"graph": 2.0, "stream": 2.0, "alone": 1.5})
    large = {key: value for key, value in result.items() if key not in ("ours_stream_us", "ours_alone_us")}
    assert with_floor(large, ceilings)["launches"] == {}
    counts = {"a": (1.19, 1.19), "b": (1.19, 1.21), "with gaps": (1.0, 1.0)}
    rows = [
        {**result, "name": name, "wall_s": 0.0, "launches": {"stream": of_stream, "alone": alone}, "speedup": None}
        for name, (of_stream, alone) in counts.items()
    ]
    assert "within 1.2 of an empty launch, packed: 2 of 2 stream, 1 of 2 alone" in summary(rows)


def test_calls_of_a_stream_are_queued_before_they_are_timed_together():
    made, seen = [], []

    def seconds(work):
        before = len(made)
        work()
        seen.append(len(made) - before)
        return float(seen[-1])

    bench = Bench.__new__(Bench)
    bench.device, bench.clock = SimpleNamespace(kind="gpu"), SimpleNamespace(seconds=seconds)
    works = [lambda: made.append("ours"), lambda: made.append("vendor")]
    assert bench._in_stream(works) == [1.0, 1.0]  # seconds per call
    assert set(seen) == {STREAM_CALLS} and made[STREAM_CALLS - 1 : STREAM_CALLS + 1] == ["ours", "vendor"]


class Driver:
    """Count what is put on the stream, and take the device's time from a simulated clock."""

    def __init__(self):
        self.calls = []

    def require(self, signatures):
        pass

    def call(self, name, *arguments):
        self.calls.append(name)


def test_a_stream_is_held_until_what_is_measured_was_queued(monkeypatch):
    driver, held, host = Driver(), [], SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: host.seconds))
    device = SimpleNamespace(kind="gpu", driver=driver, entered=contextlib.nullcontext)
    clock = Clock(
        device,
        SimpleNamespace(handle=None, require_waiting=lambda action: None),
        lambda seconds: (held.append(seconds), driver.calls.append("hold")),
    )
    slow = iter([2.5e-4, 0.0, 0.0])  # seconds that the host takes to queue the work
    driver.calls.clear()

    def queue() -> None:
        host.seconds += next(slow)

    clock.seconds(queue)
    assert held == [1e-4, 4e-4]
    measured = ["hold", "cuEventRecord", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"]
    assert driver.calls == measured * 2
    before = clock.now()
    clock._recorded = lambda: 3.0
    clock.spend(lambda: None)
    assert clock.now() - before == 3.0


def test_no_fallback_is_timed(monkeypatch):
    """The benchmark waits for kernels that are being compiled while a fallback serves."""
    made, waited = Bench("emulated", None), []
    steps = [(SimpleNamespace(wait_for_kernel=lambda number=number: waited.append(number)), ()) for number in range(2)]
    plan = SimpleNamespace(steps=steps, solver="some.solver")
    monkeypatch.setattr(made.handle.backend, "plan", lambda operation: plan)
    assert made._solver(next(iter(rows("scale"))).operation) == {"solver": "some.solver"}
    assert waited == [0, 1]


def test_a_baseline_rounds_no_more_than_the_row_allows():
    """Baselines of float recurrent networks use FMA_MATH where the row does, and both other math types elsewhere."""
    exact = next(row for row in rows("float FMA"))
    assert {one.network.math_type for _, one in algorithms_of(exact.operation)} == {cudnnMathType_t.CUDNN_FMA_MATH}
    free = next(row for row in rows("lstm backward weights 1x1 layers 64, 4 steps of 1 float"))
    assert len({one.network.math_type for _, one in algorithms_of(free.operation)}) == 2


def test_grids_of_rotated_images():
    """Grids are in memory before the timing. Neighbouring pixels sample neighbours, and few are outside the image."""
    made = Bench("emulated", None)
    row = next(rows("sampler forward of a rotated grid 32x128x28x28 half NHWC"))
    with made._memory(row) as memory:
        found = made.device.download(memory["grid"].address, row.operation.nbytes("grid"))
    grid = np.frombuffer(found, np.float16).reshape(32, 28, 28, 2).astype(float)
    pixels = (grid + 1) * 13.5
    assert np.allclose(np.linalg.norm(np.diff(pixels, axis=2), axis=-1), 0.9, atol=0.1)
    assert not np.allclose(grid[0], grid[1]) and np.mean(np.abs(grid) <= 1) > 0.9


@pytest.fixture
def bench(monkeypatch, capsys):
    """Return a function that runs the command and returns what it printed.

    pytest-benchmark measures nothing inside a worker of a parallel run, whose variables are therefore removed.
    """
    for name in [name for name in os.environ if "XDIST" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(Device, "measures_anew", Device.measures_anew)  # The command sets it.

    def run(*arguments, status=0):
        assert main(["bench", "--device", "emulated", *arguments]) == status, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_a_few_rows(bench, tmp_path):
    shown = bench("-k", "8x64x14x14 half NHWC", "--limit", "2", "--out", str(tmp_path))
    written = json.loads((tmp_path / "benchmarks.json").read_text())
    assert len(written["rows"]) == 2 and written["copy_GBps"] > 0
    assert written["small_copy_us"] > 0 and "copy of 0.4 MB" in shown and "2 small rows" in shown
    assert all(row[f"ours_{way}_us"] > 0 for row in written["rows"] for way in ("stream", "alone"))
    assert all(set(row["launches"]) == {"graph", "stream", "alone"} for row in written["rows"])
    assert all(row[f"launch{way}_us"] > 0 for row in written["rows"] for way in ("", "_stream", "_alone"))
    assert all(row["name"] in shown and row["ours_us"] > 0 and row["vendor_us"] is None for row in written["rows"])


def test_rows_until_somebody_stops_it(bench, tmp_path, monkeypatch):
    measure, begun = Bench.measure, []

    def stopped(self, row, benchmark):
        begun.append(row)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return measure(self, row, benchmark)

    monkeypatch.setattr(Bench, "measure", stopped)
    shown = bench("-k", "8x64x14x14 half NHWC", "--limit", "4", "--out", str(tmp_path), status=130)
    assert len(json.loads((tmp_path / "benchmarks.json").read_text())["rows"]) == 2 and "2 small rows" in shown


def test_a_convolution_and_the_section_of_the_report(bench, tmp_path):
    write_report(Report.build([], [Subject("host")], {}, {}, {}), tmp_path)
    shown = bench("-k", "tiny convolution 1x8x6x6 8 of 3x3 stride 1 float NHWC", "--out", str(tmp_path))
    (row,) = json.loads((tmp_path / "benchmarks.json").read_text())["rows"]
    assert row["algorithm"] in row["algorithms_us"] and row["v7_ratio"] >= 1 and row["message"] is None
    assert row["algorithm"] in shown and "0 rows without a time" in shown
    (reported,) = read_json(tmp_path / "compliance.json").benchmarks
    assert reported["ours_us"] == row["ours_us"] and "IMPLICIT_GEMM" in reported["algorithms_us"]


def test_pytorch_that_is_not_there(capsys):
    assert main(["bench", "--device", "emulated", "--torch", "yes", "-k", "tiny convolution"]) == 2
    assert "PyTorch" in capsys.readouterr().err


def test_no_such_row(capsys):
    assert main(["bench", "--device", "emulated", "-k", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
