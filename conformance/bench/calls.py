"""Runs ``dualdnn bench --calls``: times calls on the host: the first and the repeated ones from C, from Python, and by
a baseline.

One sample of every operation gives the calls: its descriptors' setters, queries and the call itself. A launch includes
the driver's time for it. On the emulated device a launch runs its kernel, so that times of
computing calls are useful on a GPU only.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.programs import host_compiler
from dualdnn.api import cudnn, files
from dualdnn.api.abi.build import build
from dualdnn.api.abi.memo.keeping import COUNTS
from dualdnn.api.status import CudnnError

from ..calls import Caller, sized
from ..cases.every_operation import SAMPLES
from ..subjects import open_subject
from ..subjects.binding.types import LibraryError

ROUNDS = 10  # rounds, of which the fastest counts
CALLS = 50  # timed calls per round
WORDS = 32  # integer arguments of a call at most
NUMBERS = 4  # floating-point arguments of a call at most
# Calls with these prefixes, except REPEATED, are not repeated: they create or destroy something, or time algorithms.
ONCE = ("cudnnCreate", "cudnnDestroy", "cudnnFind", "cudnnBackend", "cudnnMake", "cudnnNewFused")
REPEATED = ("cudnnBackendExecute", "cudnnBackendSetAttribute")


@dataclass
class Cost:
    """Holds the microseconds of a function. asked: how many of the repeated calls from C entered Python; None for a
    baseline."""

    first_us: float | None = None
    again_us: float | None = None
    python_us: float | None = None
    vendor_us: float | None = None
    asked: int | None = None


class Watched:
    """Wraps the functions of a subject. ``measure`` repeats the first call of each that succeeds."""

    def __init__(self, functions: Any, measure: Callable[[str, Any, tuple[Any, ...], float], None]) -> None:
        self.functions, self.measure, self.seen = functions, measure, set[str]()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        if not callable(function) or (name.startswith(ONCE) and name not in REPEATED) or name in self.seen:
            return function

        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            result = function(*arguments)
            first = 1e6 * (time.perf_counter() - begun)
            if name not in self.seen:
                self.seen.add(name)
                self.measure(name, function, arguments, first)
            return result

        return call


def words_of(encoded: list[Any]) -> tuple[Any, Any]:
    """Return the arguments of a C call as integers and as floating-point numbers, each in order."""
    words, numbers = (ctypes.c_uint64 * WORDS)(), (ctypes.c_double * NUMBERS)()
    integers = floating = 0
    for value in encoded:
        if type(value).__name__ == "CArgObject":  # The call ctypes.byref made it.
            value = ctypes.addressof(value._obj)
        if isinstance(value, ctypes.c_double):
            numbers[floating] = value.value
            floating += 1
            continue
        if value is None or isinstance(value, int):
            words[integers] = (value or 0) % 2**64
        elif isinstance(value, (ctypes.c_int, ctypes.c_uint, ctypes.c_longlong, ctypes.c_size_t, ctypes.c_void_p)):
            words[integers] = (value.value or 0) % 2**64
        else:
            words[integers] = ctypes.addressof(value)
        integers += 1
    return words, numbers


def compiled(folder: Path) -> Any:
    """Return the function that repeats calls from C."""
    target = folder / "repeat.so"
    source = Path(__file__).with_name("repeat.c")
    subprocess.run([host_compiler(), "-O2", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(target)], check=True)
    repeat = ctypes.CDLL(str(target)).repeat
    repeat.restype = ctypes.c_double
    return repeat


def entries() -> int:
    """Return how often C has called Python, for the library in this process."""
    inside = sys.modules["_dualdnn_c"]
    found = inside.ffi.new("unsigned long long[8]")
    inside.lib.memo_counts(found)
    return int(found[COUNTS.index("asked")])


def run_samples(caller_of: Callable[[], tuple[Any, Any]], text: str) -> list[str]:
    """Make the call of each sample whose name contains the text; return the samples that failed, with the reason."""
    functions, handle = caller_of()
    left = []
    for name, operation in SAMPLES.items():
        if text.lower() not in name.lower():
            continue
        caller = Caller(functions, handle)
        try:
            wanted = sized(caller, operation)
            memory = {operand: handle.zeros(max(wanted.nbytes(operand), 1)) for operand in wanted.operands}
            caller(wanted, memory)
        except (CudnnError, LibraryError, TypeError, ValueError) as error:
            left.append(f"{name}: {error}"[:200])
    return left


def measured(device: str, vendor: str | None, text: str, folder: Path) -> tuple[dict[str, Cost], list[str]]:
    """Return the costs by function, and what could not be called."""
    costs: dict[str, Cost] = {}
    os.environ |= {"DUALDNN_BACKEND": "accelerated", "DUALDNN_DEVICE": device, "DUALDNN_EMULATION_FOREIGN": "1"}
    repeat = compiled(folder)

    def from_c(field: str, is_ours: bool) -> Callable[[str, Any, tuple[Any, ...], float], None]:
        def measure(name: str, function: Any, arguments: tuple[Any, ...], first: float) -> None:
            kept, encoded = function.encode(arguments, {})
            words, numbers = words_of(encoded)
            status, before = ctypes.c_int(), entries() if is_ours else 0
            best = repeat(function.symbol, words, numbers, ROUNDS, CALLS, ctypes.byref(status))
            if status.value or not function.returns_status:
                return
            cost = costs.setdefault(name, Cost())
            setattr(cost, field, best)
            if is_ours:
                cost.first_us, cost.asked = first, entries() - before
            del kept

        return measure

    def from_python(name: str, function: Any, arguments: tuple[Any, ...], _first: float) -> None:
        best = float("inf")
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            for _ in range(CALLS):
                function(*arguments)
            best = min(best, 1e6 * (time.perf_counter() - begun) / CALLS)
        costs.setdefault(name, Cost()).python_us = best

    def library(path: str, field: str, is_ours: bool) -> Callable[[], tuple[Any, Any]]:
        def opened() -> tuple[Any, Any]:
            subject = open_subject(path)
            return Watched(subject.cudnn, from_c(field, is_ours)), subject.new_handle()

        return opened

    left = run_samples(library(f"library:{build(folder)}", "again_us", True), text)
    run_samples(lambda: (Watched(cudnn, from_python), cudnn.cudnnCreate(backend="accelerated", device=device)), text)
    if vendor:
        run_samples(library(vendor, "vendor_us", False), text)
    return costs, left


def table(costs: dict[str, Cost], left: list[str]) -> str:
    """Return the costs as text."""
    lines = [f"{'microseconds a call of the host':48}{'first':>9}{'again':>9}{'Python':>9}{'baseline':>9}{'asked':>7}"]
    for name, cost in sorted(costs.items()):
        numbers = [cost.first_us, cost.again_us, cost.python_us, cost.vendor_us]
        shown = "".join("        -" if number is None else f"{number:9.2f}" for number in numbers)
        lines.append(f"{name:48}{shown}{'-' if cost.asked is None else cost.asked:>7}")
    return "\n".join([*lines, *(f"not called: {each}" for each in left)])


def run(device: str, vendor: str | None, text: str, out: Path) -> int:
    """Measure, print and write calls.json; return 1 where nothing could be called."""
    with tempfile.TemporaryDirectory() as folder:
        costs, left = measured(device, vendor, text, Path(folder))
    print(table(costs, left))
    out.mkdir(parents=True, exist_ok=True)
    files.write(
        out / "calls.json", json.dumps({name: asdict(cost) for name, cost in sorted(costs.items())}, indent=1).encode()
    )
    return 0 if costs else 1
