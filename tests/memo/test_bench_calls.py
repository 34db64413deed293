"""Test ``dualdnn bench --calls`` by counts, not by seconds."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from dualdnn.accelerated.runtime.emulated.device import EmulatedFunction
from dualdnn.api import cudnn, releases
from dualdnn.api.answers import QUERIED, is_repeated
from dualdnn.api.document import functions
from dualdnn.api.functions import computing_of
from dualdnn.conformance.bench.calls import Watched, compiled, run_samples, words_of

# These calls launch several kernels, use scratch memory, or run what a descriptor holds.
LONGER = (
    "cudnnRNN", "cudnnMultiHeadAttn", "cudnnNormalizationBackward", "cudnnBatchNormalizationBackwardEx", "cudnnFusedOps", "cudnnCTCLoss",
    "cudnnDropoutForward", "cudnnDivisiveNormalizationBackward", "cudnnBackendExecute",
)  # fmt: skip


@pytest.mark.long
def test_repeated_calls_do_not_ask_python(tmp_path: Path) -> None:
    """The calls of one sample are measured hundreds of times. The memo answers all but at most two calls of each function."""
    command = [sys.executable, "-m", "dualdnn", "bench", "--calls", "--device", "emulated", "-k", "AddTensor"]
    ran = subprocess.run(
        [*command, "--out", str(tmp_path)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    costs = json.loads((tmp_path / "calls.json").read_text())
    assert {"cudnnAddTensor", "cudnnSetTensorNdDescriptor"} <= {*costs}
    for name, cost in costs.items():
        assert cost["asked"] <= 2, name
        assert 0 < cost["again_us"] < cost["first_us"] and cost["python_us"] > 0, name


def test_repeated_calls_from_python_enter_few_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated host-side call of Python runs one function, the call itself. A launch adds one, and one for each operand.
    The call needs less than a kilobyte of memory, and keeps nothing of it."""
    monkeypatch.setattr(EmulatedFunction, "in_shape", lambda *_: lambda arguments: lambda stream: None)
    monkeypatch.setattr(releases, "in_use", False)  # Another test of this process may have named a release.
    entered: dict[str, list[str]] = {}
    memory: dict[str, list[int]] = {}  # bytes that a call has kept, and its peak

    def count(name: str, call: Any, arguments: tuple[Any, ...], _first: float) -> None:
        for _ in range(2):
            call(*arguments)
        names = entered[name] = []
        sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_qualname) if event == "call" else None)
        try:
            call(*arguments)
        finally:
            sys.setprofile(None)
        tracemalloc.start()
        for _ in range(4):  # The interpreter allocates in the first rounds.
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            call(*arguments)
            kept, peak = tracemalloc.get_traced_memory()
        memory[name] = [kept - before, peak - before]
        tracemalloc.stop()

    handle = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    assert run_samples(lambda: (Watched(cudnn, count), handle), "") == []
    counted = [
        name
        for name in entered
        if not name.startswith(LONGER) and (computing_of(name) or is_repeated(functions()[name]))
    ]
    assert len(counted) > 50
    for name in counted:
        assert memory[name][0] == 0 and memory[name][1] < 1000, (name, memory[name])
        is_queried = any(p.base_type in QUERIED for p in functions()[name].arguments)
        device = [p for p in functions()[name].arguments if p.memory == "device"]
        assert len(entered[name]) <= (2 + len(device) if computing_of(name) else 4 if is_queried else 1), (
            name,
            entered[name],
        )


def test_arguments_of_any_kind_arrive(tmp_path: Path) -> None:
    """Integers beyond the registers, negative integers, numbers by value and memory by address all arrive."""
    source = tmp_path / "seen.c"
    source.write_text("""
        int seen(int a, long b, double c, const int *d, unsigned long e, long f, long g, long h, double i, long j) {
          return !(a == -1 && b == 2 && c == 0.5 && d[1] == 4 && e == 1ul << 63 && f == 6 && g == 7 && h == 8 && i == -3 && j == 10);
        }""")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "seen.so")], check=True)
    array, place = (ctypes.c_int * 2)(3, 4), ctypes.c_int(5)
    encoded = [
        ctypes.c_int(-1), 2, ctypes.c_double(0.5), array, ctypes.c_size_t(1 << 63), 6, ctypes.c_longlong(7), 8, ctypes.c_double(-3), 10,
    ]  # fmt: skip
    status = ctypes.c_int(9)
    words, numbers = words_of(encoded)
    seen = ctypes.CDLL(str(tmp_path / "seen.so")).seen
    repeat = compiled(tmp_path)
    assert repeat(seen, words, numbers, 2, 3, ctypes.byref(status)) > 0 and status.value == 9
    encoded[0] = ctypes.byref(place)
    assert words_of(encoded)[0][0] == ctypes.addressof(place)
    words[0] = 1
    repeat(seen, words, numbers, 1, 1, ctypes.byref(status))
    assert status.value == 1


def test_an_argument_without_a_c_type_is_refused() -> None:
    """An argument of a kind that C does not have raises TypeError."""
    with pytest.raises(TypeError):
        words_of([object()])
