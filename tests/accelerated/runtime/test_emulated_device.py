"""Tests the emulated device: correct kernels give correct results in any thread order, faulty ones are reported.

The correct kernels also run on a GPU, if there is one.
"""

from __future__ import annotations

import gc
import math
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dualdnn.accelerated.primitives.tma import TiledMap
from dualdnn.accelerated.runtime.device import Device
from dualdnn.accelerated.runtime.devices import gpu_is_usable, open_device
from dualdnn.accelerated.runtime.emulated import memory as emulated_memory
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.emulated.library import launching
from dualdnn.accelerated.runtime.emulated.memory import Allocation
from dualdnn.accelerated.runtime.errors import DeviceError, DeviceUnavailable
from dualdnn.accelerated.runtime.memory import Memory

KERNELS = Path(__file__).parent / "kernels"
SEEDS = (0, 1, 12345)
ELEMENTS = {
    "float": np.float32,
    "double": np.float64,
    "__half": np.float16,
    "__nv_bfloat16": ml_dtypes.bfloat16,
}


@pytest.fixture(
    params=["emulated", pytest.param("gpu", marks=pytest.mark.skipif(not gpu_is_usable(), reason="no GPU"))]
)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    device: Any = open_device("emulated")
    monkeypatch.setattr(device, "seed", 0)
    monkeypatch.setattr(device, "guard", "end")
    yield device


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest, emulated: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(emulated, "seed", request.param)
    return int(request.param)


def to_device(device: Device, array: np.ndarray[Any, Any]) -> Memory:
    memory = device.allocate(array.nbytes)
    device.upload(memory.address, array.view(np.uint8) if array.ndim else array.tobytes())
    return memory


def to_host(device: Device, memory: Memory, dtype: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(device.download(memory.address, memory.nbytes), dtype)


# --- correct kernels ---


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("count", [1, 255, 1000])
def test_elementwise_sum(device: Device, seed: int, element: str, count: int) -> None:
    dtype = ELEMENTS[element]
    random = np.random.default_rng(count)
    a, b = (random.standard_normal(count).astype(dtype) for _ in range(2))
    memories = [to_device(device, a), to_device(device, b), device.allocate(a.nbytes)]
    add = device.function(KERNELS / "basic.cu", "add", (("ELEMENT", element),))
    add.launch(struct.pack("QQQq", *(memory.address for memory in memories), count), (3,), (128,))
    expected = (a.astype(np.float32) + b.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(to_host(device, memories[2], dtype), expected)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_block_sum(device: Device, seed: int, element: str, threads: int) -> None:
    dtype = ELEMENTS[element]
    values = np.random.default_rng(threads).integers(-8, 8, 5003).astype(dtype)  # Sums of small integers are exact.
    source, sums = to_device(device, values), device.allocate(4 * 3)
    block_sum = device.function(KERNELS / "basic.cu", "block_sum", (("ELEMENT", element),))
    block_sum.launch(struct.pack("QQi4x", source.address, sums.address, values.size), (3,), (threads,))
    indices = np.arange(values.size) // threads % 3
    expected = [values[indices == block].astype(np.float64).sum() for block in range(3)]
    np.testing.assert_array_equal(to_host(device, sums, np.float32), expected)


def test_cooperative_launches(device: Device) -> None:
    """Blocks that wait for each other must run at once, so the emulated device accepts only one."""
    values = np.arange(64, dtype=np.float32)
    source, target = to_device(device, values), device.allocate(values.nbytes)
    reverse = device.function(KERNELS / "basic.cu", "reverse_blocks")
    arguments = struct.pack("QQi4x", source.address, target.address, 0)
    reverse.launch(arguments, (1,), (64,), 256, cooperative=True)
    np.testing.assert_array_equal(to_host(device, target, np.float32), values[::-1])
    if device.kind == "emulated":
        with pytest.raises(DeviceError, match=r"reverse_blocks: a cooperative launch of grid=\(2,\)"):
            reverse.launch(arguments, (2,), (32,), 128, cooperative=True)


@pytest.mark.parametrize("threads", [64, 1000])
def test_dynamic_shared_memory(device: Device, seed: int, threads: int) -> None:
    values = np.arange(2 * threads, dtype=np.float32)
    source, target = to_device(device, values), device.allocate(values.nbytes)
    reverse = device.function(KERNELS / "basic.cu", "reverse_blocks")
    reverse.launch(struct.pack("QQi4x", source.address, target.address, 0), (2,), (threads,), 4 * threads)
    np.testing.assert_array_equal(to_host(device, target, np.float32).reshape(2, -1), values.reshape(2, -1)[:, ::-1])


def test_modules_share_the_stacks(emulated: Any) -> None:
    """A thousand modules share the stacks, because a stack takes two of a process's 65000 mappings."""
    source = to_device(emulated, np.arange(1024, dtype=np.float32))
    target = emulated.allocate(4096)
    arguments = struct.pack("QQi4x", source.address, target.address, 0)

    def mappings(module: str, threads: int) -> int:
        reverse = emulated.function(KERNELS / "basic.cu", "reverse_blocks", (("ONLY_HERE", module),))
        reverse.launch(arguments, (1,), (threads,), 4096)
        emulated.synchronize()
        assert np.array_equal(to_host(emulated, target, np.float32)[:threads], np.arange(threads)[::-1])
        return len(Path("/proc/self/maps").read_text().splitlines())

    before = mappings("1", 1024)
    for module, threads in (("1", 64), ("2", 1024), ("2", 1000), ("1", 1024)):
        assert mappings(module, threads) < before + 64


def test_all_of_the_shared_memory(device: Device) -> None:
    values = np.arange(64, dtype=np.float32)
    source, target = to_device(device, values), device.allocate(values.nbytes)
    reverse = device.function(KERNELS / "basic.cu", "reverse_blocks")
    arguments = struct.pack("QQi4x", source.address, target.address, 0)
    reverse.launch(arguments, (1,), (64,), device.shared_bytes_per_block)
    np.testing.assert_array_equal(to_host(device, target, np.float32), values[::-1])
    with pytest.raises(ValueError, match=rf"shared_bytes={device.shared_bytes_per_block + 1} "):
        reverse.launch(arguments, (1,), (64,), device.shared_bytes_per_block + 1)


def run_collective(device: Device, name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    source, target = to_device(device, values), device.allocate(4 * 8 * values.size)
    device.fill(target.address, target.nbytes, 0)
    function = device.function(KERNELS / "collectives.cu", name)
    function.launch(struct.pack("QQi4x", source.address, target.address, values.size), (1,), (values.size,))
    return to_host(device, target, np.int32).reshape(values.size, 8)


@pytest.mark.parametrize("low", [0, -10])
def test_votes_and_reductions(device: Device, seed: int, low: int) -> None:
    values = np.random.default_rng(7).integers(low, 10, 96).astype(np.int32)
    result = run_collective(device, "votes", values)
    odd = values & 1
    for warp in range(3):
        lanes = slice(32 * warp, 32 * warp + 32)
        mine = values[lanes]
        expected = [
            sum(int(bit) << i for i, bit in enumerate(odd[lanes])), (mine == 5).any(), (mine >= 0).all(),
            odd.sum(), (values == 5).any(), (values >= 0).all(), mine.sum(), np.bitwise_xor.reduce(mine),
        ]  # fmt: skip
        np.testing.assert_array_equal(
            result[lanes].view(np.uint32), np.tile(np.array(expected).astype(np.uint32), (32, 1))
        )


def test_shuffles_read_the_lane_that_ptx_defines(device: Device, seed: int) -> None:
    values = np.random.default_rng(8).integers(-100, 100, 64).astype(np.int32)
    result = run_collective(device, "shuffles", values)
    for i, row in enumerate(result):
        lane, warp = i % 32, values[i - i % 32 : i - i % 32 + 32]
        sources = [
            3, lane // 8 * 8 + 3, lane - 2 if lane >= 2 else lane, lane - 2 if lane % 16 >= 2 else lane,
            lane + 3 if lane + 3 < 32 else lane, lane + 3 if lane % 8 + 3 < 8 else lane, lane ^ 5,
        ]  # fmt: skip
        assert row.tolist() == [*warp[sources], np.ptp(warp)]


def test_lanes_that_left_are_not_waited_for(device: Device, seed: int) -> None:
    values = np.arange(64, dtype=np.int32)
    result, votes = run_collective(device, "half_warp", values).reshape(-1)[:128].reshape(2, 64)
    expected = np.where(values % 2, 0, np.where(values < 32, values[0:32:2].sum(), values[32:64:2].sum()))
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(votes, np.where(values % 2, 0, sum(1 << lane for lane in range(2, 32, 4))))


def test_atomics_of_all_threads_are_added(device: Device, seed: int) -> None:
    values = np.random.default_rng(9).integers(1, 1000, 500).astype(np.int32)
    start = np.array([0, -1, 10**6, 0, 1, 0], np.int32)
    dtypes = (np.int32, np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
    initial = [start, *(np.zeros(2 if np.dtype(dtype).itemsize == 2 else 1, dtype) for dtype in dtypes[1:])]
    source, *targets = (to_device(device, array) for array in (values, *initial))
    function = device.function(KERNELS / "collectives.cu", "atomics")
    addresses = [memory.address for memory in (source, *targets)]
    function.launch(struct.pack("6Qi4x", *addresses, values.size), (4,), (128,))
    integers, floats, doubles, half_values, bfloats = (
        to_host(device, *pair) for pair in zip(targets, dtypes, strict=True)
    )
    assert integers.tolist() == [values.sum(), values.max(), values.min(), np.bitwise_or.reduce(values), 77, 55]
    assert floats[0] == doubles[0] == values.sum()
    assert half_values[0] == (values % 3).sum()
    total = np.array(0, ml_dtypes.bfloat16)  # The sum of ones stays at 256, because 257 is not a bfloat16.
    for value in values % 2:
        total = np.array(float(total) + value, ml_dtypes.bfloat16)
    assert bfloats[0] == total


def saturated(value: float, low: int, high: int, nan: int) -> int:
    return nan if math.isnan(value) else high if value >= high else low if value <= low else int(value)


def test_conversions_and_mathematics(device: Device) -> None:
    values = np.array(
        [
            0.0,
            -0.0,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            0.3,
            -7.7,
            1e10,
            -1e10,
            1e30,
            -1e30,
            np.inf,
            -np.inf,
            np.nan,
            2**31 - 0.5,
        ]
    )
    source, target = to_device(device, values), device.allocate(8 * 20 * values.size)
    convert = device.function(KERNELS / "conversions.cu", "convert")
    convert.launch(struct.pack("QQi4x", source.address, target.address, values.size), (1,), (32,))
    result = to_host(device, target, np.float64).reshape(values.size, 20)
    int32, int64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
    for x, row in zip(values.tolist(), result.tolist(), strict=True):
        f = float(np.float32(x))
        rounded = [f if not math.isfinite(f) else float(mode(f)) for mode in (np.rint, np.trunc, np.ceil, np.floor)]
        assert row[:4] == [saturated(value, *int32, 0) for value in rounded]
        assert row[4] == saturated(float(np.rint(x)), *int32, -(2**31))
        assert row[5] == saturated(rounded[0], 0, 2**32 - 1, 0)
        assert row[6] == float(saturated(rounded[0], *int64, -(2**63)))
        assert row[7] == float(saturated(float(np.trunc(x)), *int64, -(2**63)))
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(row[8:10], 1 / np.sqrt([x, f]), rtol=3e-7)
            fraction = math.fmod(x, 2) if math.isfinite(x) else math.nan
            np.testing.assert_allclose(
                row[10:12], [np.sin(np.pi * fraction), np.cos(np.pi * fraction)], rtol=1e-14, atol=1e-15
            )
            assert row[12:14] == [np.fmin(x, 1), np.fmax(f, 1)]
            assert row[14:16] == [0.0 if math.isnan(f) else min(max(f, 0), 1), np.fmax(f, 0)]
            assert row[16] == (2 if math.isnan(f) else 1 if math.isinf(f) else 0)
            np.testing.assert_allclose(row[17], np.tanh(f), rtol=3e-7)
            np.testing.assert_allclose(row[18], 0.5 * math.erfc(-x / math.sqrt(2)), rtol=1e-13)
            np.testing.assert_array_equal(row[19], np.float32(np.float32(f) * np.float32(f)) + np.float32(0.5))


def test_bit_intrinsics(device: Device) -> None:
    values = np.append(np.random.default_rng(1).integers(0, 2**32, 30), [0, 1, 2**31, 2**32 - 1]).astype(np.uint32)
    source, target = to_device(device, values), device.allocate(4 * 12 * values.size)
    bits = device.function(KERNELS / "conversions.cu", "bits")
    bits.launch(struct.pack("QQi4x", source.address, target.address, values.size), (2,), (32,))

    def signed(value: int) -> int:
        return value - 2**32 if value >= 2**31 else value

    def expected(x: int, y: int) -> list[int]:
        joined = y << 32 | x
        bytes_of = joined.to_bytes(8, "little")
        return [
            x.bit_count(), 32 - x.bit_length(), (x & -x).bit_length(), int(f"{x:032b}"[::-1], 2), x * y >> 32,
            signed(x) * signed(y) >> 32, int.from_bytes(bytes([bytes_of[i] for i in (0, 4, 1, 5)]), "little"),
            joined << (y & 31) >> 32, joined >> (y & 31),
            3 + int(np.dot(*(np.array([v], "<u4").view(np.int8).astype(int) for v in (x, y)))), x & 0x7EFFFFFF,
            ((x << 32 | y) * (y << 32 | x) >> 64) >> 7,
        ]  # fmt: skip

    rows = [[v % 2**32 for v in expected(int(x), int(y))] for x, y in zip(values, np.roll(values, -1), strict=True)]
    np.testing.assert_array_equal(to_host(device, target, np.uint32).reshape(-1, 12), rows)


@pytest.mark.parametrize("element, ptx", [("__half", "f16"), ("__nv_bfloat16", "bf16")])
def test_tensor_core_instructions(device: Device, seed: int, element: str, ptx: str) -> None:
    dtype, columns, depth = ELEMENTS[element], 32, 48
    random = np.random.default_rng(3)
    a, b = (random.integers(-8, 8, (rows, depth)).astype(dtype) for rows in (16, columns))
    memories = [to_device(device, a), to_device(device, b), device.allocate(4 * 16 * columns)]
    definitions = (("ELEMENT", element), ("PTX_ELEMENT", f'"{ptx}"'))
    function = device.function(KERNELS / "matrix.cu", "multiply_tile", definitions)
    function.launch(struct.pack("QQQii", *(m.address for m in memories), columns, depth), (columns // 16,), (32,))
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(to_host(device, memories[2], np.float32).reshape(16, columns), expected)


# --- faulty kernels ---


def line_of(mark: str) -> str:
    """Return faults.cu:LINE for the line that ends with the mark."""
    lines = (KERNELS / "faults.cu").read_text().splitlines()
    return f"faults.cu:{next(i for i, line in enumerate(lines, 1) if line.endswith('// ' + mark))}"


def run_fault(
    device: Device, name: str, number: int = 0, *, nbytes: int = 256, threads: int = 64, shared: int = 0
) -> np.ndarray[Any, Any]:
    values = np.arange(nbytes // 4, dtype=np.float32)
    memory = to_device(device, values)
    function = device.function(KERNELS / "faults.cu", name)
    function.launch(struct.pack("Qii", memory.address, number, 0), (1,), (threads,), shared)
    return to_host(device, memory, np.float32)


FAULTS = {
    "write behind the end": (
        "write_value",
        1,
        "write_value: write",
        r"thread \(63, 0, 0\).* 0 bytes behind the end of the 256",
    ),
    "read behind the end": (
        "read_value",
        2,
        "read_value: read",
        r"thread \(62, 0, 0\).* 0 bytes behind the end of the 256",
    ),
    "misaligned vector": ("load_vector", 1, "load_vector: load", "misaligned access.*float4.* multiple of 16"),
    "strange parity": ("strange_parity", 2, "strange_parity: wait", "parity is 2, neither 0 nor 1"),
    "misaligned copy": ("misaligned_copy", 1, "misaligned_copy: copy", "cp.async: 16 bytes .* no multiple of them"),
    "vector behind the end": ("load_vector", 64, "load_vector: load", "0 bytes behind the end"),
    "inlined load": ("helper_load", 64, "helper_load: load", "0 bytes behind the end"),
    "divergent barrier": ("divergent_barrier", 32, "divergent_barrier: first", "divergent barrier"),
    "the other side of it": ("divergent_barrier", 32, "divergent_barrier: second", "divergent barrier"),
    "skipped barrier": ("skipped_barrier", 40, "skipped_barrier: barrier", "deadlock: 40 threads.*24"),
    "warp deadlock": ("stuck_shuffle", 0, "stuck_shuffle: shuffle", "deadlock: 64 threads"),
    "shared array": (
        "shared_index",
        0,
        "shared_index: write",
        r"thread \(32, 0, 0\).*index 32 is out of bounds of 'float \[32\]'",
    ),
    "assertion": (
        "failed_assertion",
        33,
        "failed_assertion: assert",
        r"thread \(33, 0, 0\).*threadIdx.x < arguments.number",
    ),
    "forgotten load": (
        "forgotten_load",
        1,
        "forgotten_load: load",
        "a copy of 128 bytes that no thread has waited for when the block ends",
    ),
    "forgotten copy": ("forgotten_copy", 63, "forgotten_copy: copy", "a copy of 4 bytes that no thread has waited for"),
    "two copies into the same bytes": (
        "two_copies",
        3,
        "two_copies: other",
        "two copies in flight write to the same memory",
    ),
    "the other of two copies": ("two_copies", 3, "two_copies: one", "two copies in flight write to the same memory"),
    "a copy into what TMA loads": ("copy_and_load", 31, "copy_and_load: other", "two copies in flight .*faults.cu"),
    "a write into what is copied": (
        "written_while_copied",
        3,
        "written_while_copied: copy",
        "memory was written that a copy in flight writes to",
    ),
    "a copy out of bounds": (
        "copy_elsewhere",
        64,
        "copy_elsewhere: copy",
        "16 bytes to .*, not into the shared memory",
    ),
    "more bytes expected than come": ("expected_bytes", 256, "expected_bytes: wait", "deadlock: 64 threads"),
    "fewer bytes expected than come": ("expected_bytes", 64, "expected_bytes: wait", "deadlock: 64 threads"),
    "more bytes than can be expected": (
        "expected_bytes",
        1 << 20,
        "expected_bytes: arrival",
        "an mbarrier expects more than 1048575 bytes",
    ),
    "load that is not expected": (
        "unexpected_load",
        2,
        "unexpected_load: load",
        "an mbarrier's phase ended before this load, whose bytes it did not expect",
    ),
    "barrier elsewhere": (
        "barrier_elsewhere",
        0,
        "barrier_elsewhere: init",
        "an mbarrier that is not at a multiple of 8",
    ),
    "barrier set up twice": (
        "repeated_barrier",
        1,
        "repeated_barrier: init",
        r"thread \(1, 0, 0\).*an mbarrier is set up twice",
    ),
    "more arrivals than threads": (
        "crowded_barrier",
        2,
        "crowded_barrier: arrival",
        "more threads arrive at an mbarrier",
    ),
    "a phase that nobody saw": ("unseen_phase", 2, "unseen_phase: arrival", "before a thread has waited for the last"),
    "no wait for earlier kernels": (
        "forgets_to_wait",
        0,
        "forgets_to_wait: write",
        "before griddepcontrol_wait_before_access.*at byte 0 of the 256",
    ),
    "wait for earlier kernels too late": (
        "reads_before_it_waits",
        3,
        "reads_before_it_waits: read",
        "before griddepcontrol_wait_before_access.*at byte 12 of the 256",
    ),
    "copy before the wait for earlier kernels": (
        "copies_before_it_waits",
        0,
        "copies_before_it_waits: copy",
        r"a copy before griddepcontrol_wait_before_access\(\)",
    ),
    "division by zero": ("divide", 0, "divide: division", "division by zero"),
    "shift too far": ("shift", 40, "shift: shift", "shift of 'unsigned int' by 40"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_reported_with_its_line(emulated: Any, fault: str) -> None:
    name, number, mark, message = FAULTS[fault]
    with pytest.raises(DeviceError, match=f"(?s)^{name} failed in block \\(0, 0, 0\\).*{message}") as caught:
        run_fault(emulated, name, number, shared=256)
    assert line_of(mark) in str(caught.value)
    run_fault(emulated, "trap", -1)  # The device still works.


@pytest.mark.parametrize(
    "name, number",
    [
        ("forgotten_copy", 64), ("two_copies", 4), ("copy_and_load", 32), ("written_while_copied", 4),
        ("copy_elsewhere", 60), ("expected_bytes", 128), ("unexpected_load", 1), ("some_wait", 1),
    ],
)  # fmt: skip
def test_the_corrected_kernels_report_nothing(emulated: Any, name: str, number: int, seed: int) -> None:
    run_fault(emulated, name, number, shared=256)


@pytest.mark.parametrize(
    "name, number, message", [("deep_recursion", 1000, "stack overflow"), ("trap", 3, r"thread \(3, 0, 0\).*__trap")]
)
def test_a_stack_overflow_and_a_trap_are_reported(emulated: Any, name: str, number: int, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        run_fault(emulated, name, number)


def test_null_pointer(emulated: Any) -> None:
    function = emulated.function(KERNELS / "faults.cu", "write_value")
    with pytest.raises(DeviceError, match=r"invalid memory access at address .*, in no allocation") as caught:
        function.launch(struct.pack("Qii", 0, 4, 0), (1,), (1,))
    assert line_of("write_value: write") in str(caught.value)


def test_recursion_within_the_stack(emulated: Any) -> None:
    assert run_fault(emulated, "deep_recursion", 10)[0] == 55


@pytest.mark.parametrize("nbytes", [256, 4096, 248])
def test_write_before_the_start(emulated: Any, nbytes: int) -> None:
    with pytest.raises(DeviceError, match=r"write_value .*before the start of the " + f"{nbytes} bytes"):
        run_fault(emulated, "write_value", -1, nbytes=nbytes, threads=1)


@pytest.mark.parametrize("name, mark", [("write_value", "write_value: write"), ("read_value", "read_value: read")])
def test_access_before_the_start_where_the_inaccessible_page_is(emulated: Any, name: str, mark: str) -> None:
    emulated.guard = "start"
    with pytest.raises(DeviceError, match="4 bytes before the start of the 256 bytes") as caught:
        run_fault(emulated, name, -1)
    assert line_of(mark) in str(caught.value)


def test_write_into_the_last_padding(emulated: Any) -> None:
    with pytest.raises(DeviceError, match="write_value wrote 0 bytes behind the end of the 252 bytes"):
        run_fault(emulated, "write_value", 0, nbytes=252)


@pytest.mark.parametrize("number", [1, -1, 3000, -3000, 200_000])
@pytest.mark.parametrize("name", ["dynamic_shared_index", "dynamic_shared_read"])
@pytest.mark.parametrize("side", [0, 1])
def test_dynamic_shared_memory_ends_at_both_sides(emulated: Any, side: int, name: str, number: int) -> None:
    """An inaccessible page follows the memory if the seed is even, and precedes it if the seed is odd.

    On the other side, a write inside the page is found when the block ends, an access beyond the page at once.
    """
    emulated.seed, index = side, number + (64 if name == "dynamic_shared_read" and number > 0 else 0)
    if abs(number) == 1 and (number < 0) != side:
        if name == "dynamic_shared_read":
            return
        first = 256 if number > 0 else -4
        message = f"dynamic shared memory was written at byte {first}, the launch has 256 bytes"
    else:
        message = r"invalid memory access at byte -?\d+ of the dynamic shared memory, which has 256"
    with pytest.raises(DeviceError, match=message) as caught:
        run_fault(emulated, name, index, shared=256)
    assert "written at" in message or line_of(f"{name}: {'read' if 'read' in name else 'write'}") in str(caught.value)
    run_fault(emulated, name, 0, shared=256)


def test_sizes_of_dynamic_shared_memory_that_are_no_multiple_of_16(emulated: Any) -> None:
    with pytest.raises(DeviceError, match="written at byte 252, the launch has 252 bytes"):
        run_fault(emulated, "dynamic_shared_index", 0, shared=252)


def test_reading_what_a_copy_in_flight_writes_to(emulated: Any) -> None:
    with pytest.raises(DeviceError, match=r"ldmatrix at .* reads memory that a copy in flight writes to") as caught:
        run_fault(emulated, "matrix_while_copied", 28, threads=32)
    assert line_of("matrix_while_copied: copy") in str(caught.value)
    run_fault(emulated, "matrix_while_copied", 32, threads=32)


def test_sums_of_products_in_flight(emulated: Any) -> None:
    assert (run_fault(emulated, "early_sums", 1, nbytes=512, threads=128, shared=8192) == 16).all()
    assert (run_fault(emulated, "early_sums", 0, nbytes=512, threads=128, shared=8192) == 0).all()
    with pytest.raises(
        DeviceError, match=rf"wgmma at {line_of('early_sums: product')}: a tile at .*, no multiple of 1024"
    ):
        run_fault(emulated, "early_sums", 33, nbytes=512, threads=128, shared=8192)
    with pytest.raises(DeviceError, match=r"wgmma at .*: no wgmma_fence\(\) since the last wait"):
        run_fault(emulated, "early_sums", 129, nbytes=512, threads=128, shared=8192)


def box_arguments(emulated: Any, map_: TiledMap, base: int, target: int, first: int, at: int) -> bytes:
    """Pack the arguments of a kernel that takes BoxArguments."""
    return struct.pack("Qii", target, first, at).ljust(64, b"\0") + bytes(emulated.tensor_map(map_, base))


def load_box(emulated: Any, first: int, at: int) -> list[float]:
    values = np.arange(128, dtype=np.float32)
    source, target = to_device(emulated, values), emulated.allocate(256)
    tensor = TiledMap("float", (64, 2, 1), (256, 512), (32, 2, 1))
    arguments = box_arguments(emulated, tensor, source.address, target.address, first, at)
    emulated.function(KERNELS / "faults.cu", "load_box").launch(arguments, (1,), (64,), 4096)
    return to_host(emulated, target, np.float32).tolist()


@pytest.mark.parametrize("at", [0, 128, 896])
def test_boxes_are_swizzled_by_their_address(emulated: Any, at: int) -> None:
    found = load_box(emulated, 4, at)
    assert found[:4] == [4.0 + 4 * (at // 128 % 8) + i for i in range(4)]
    assert found[32:36] == [68.0 + 4 * ((at // 128 + 1) % 8) + i for i in range(4)]


@pytest.mark.parametrize("first, at, message", [(2, 0, "begins at element 2"), (4, 64, "not at a multiple of 128")])
def test_boxes_that_are_not_aligned(emulated: Any, first: int, at: int, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        load_box(emulated, first, at)
    assert line_of("load_box: load") in str(caught.value)


@pytest.mark.parametrize(
    "columns, first, message",
    [(64, 32, ""), (62, 32, "rows of 62 elements"), (64, -16, "a store begins at element -16")],
)
def test_boxes_are_stored_inside_rows_of_whole_vectors(emulated: Any, columns: int, first: int, message: str) -> None:
    """TMA writes whole vectors of 16 bytes, also past a row that ends inside one. A GPU stores no box that begins before a row."""
    target = to_device(emulated, np.zeros(128, np.float32))
    tensor = TiledMap("float", (columns, 2, 1), (256, 512), (32, 2, 1))
    arguments = box_arguments(emulated, tensor, target.address, 0, first, 0)
    stores = partial(emulated.function(KERNELS / "faults.cu", "store_box").launch, arguments, (1,), (64,), 4096)
    if not message:
        stores()
        assert to_host(emulated, target, np.float32)[32:36].tolist() == [0.0, 1.0, 2.0, 3.0]
        return
    with pytest.raises(DeviceError, match=message) as caught:
        stores()
    assert line_of("store_box: store") in str(caught.value)


def test_variables_start_as_nan(emulated: Any) -> None:
    assert run_fault(emulated, "unset_variable", 8)[1] == 28
    assert np.isnan(run_fault(emulated, "unset_variable", 7)).tolist() == [False] + 63 * [True]


def test_a_thread_without_griddepcontrol_wait(emulated: Any) -> None:
    """The device checks the first thread and another one, which it draws by the seed and the size of the launch."""
    function = emulated.function(KERNELS / "faults.cu", "some_wait")
    memory, found = emulated.allocate(256), []
    for blocks in range(1, 9):
        function.launch(struct.pack("Qii", memory.address, 1, 0), (blocks,), (64,))
        try:
            function.launch(struct.pack("Qii", memory.address, 0, 0), (blocks,), (64,))
        except DeviceError as error:
            found.append(str(error))
    assert 2 <= len(found) < 8
    assert all(
        "before griddepcontrol_wait_before_access" in text and line_of("some_wait: write") in text for text in found
    )


def test_an_asynchronous_copy_is_poison_until_the_wait(emulated: Any) -> None:
    assert np.isnan(run_fault(emulated, "early_copy")).all()


def test_loads_that_are_waited_for(emulated: Any) -> None:
    assert np.isfinite(run_fault(emulated, "forgotten_load", 2)).all()


def test_shared_memory_starts_as_nan(emulated: Any) -> None:
    for _ in range(2):  # The device overwrites what an earlier launch left.
        assert np.isnan(run_fault(emulated, "unset_shared", threads=32)[:32]).tolist() == [True] + 31 * [False]


@pytest.mark.parametrize("name", ["missing_barrier", "missing_second_barrier"])
def test_missing_barrier_shows_between_seeds(emulated: Any, name: str) -> None:
    results = []
    for seed in SEEDS:
        emulated.seed = seed
        results.append(run_fault(emulated, name))
    assert not np.array_equal(results[0], results[1], equal_nan=True)
    assert not np.array_equal(results[0], results[2], equal_nan=True)


def test_freed_memory_is_inaccessible(emulated: Any) -> None:
    memory = emulated.allocate(4096)
    memory.free()
    function = emulated.function(KERNELS / "faults.cu", "write_value")
    with pytest.raises(DeviceError, match="in the freed 4096 bytes") as caught:
        function.launch(struct.pack("Qii", memory.address, 0, 0), (1,), (1,))
    assert line_of("write_value: write") in str(caught.value)
    with pytest.raises(DeviceError, match=r"download: 16 bytes at .* in the freed 4096 bytes"):
        emulated.download(memory.address, 16)


# --- memory, launches, streams ---


def test_memory_is_filled_and_copied(device: Device) -> None:
    memory = device.allocate(1000)
    assert memory.address % 16 == 0 and memory.nbytes == 1000
    device.fill(memory.address, 1000, 7)
    device.upload(memory.address + 10, np.arange(5, dtype=np.uint8))
    device.copy(memory.address + 500, memory.address, 20)
    data = device.download(memory.address, 1000)
    assert data[:20] == data[500:520] == bytes([7] * 10 + [0, 1, 2, 3, 4] + [7] * 5)
    assert device.download(memory.address, 0) == bytearray()
    device.upload(memory.address, b"")
    memory.free()
    with pytest.raises(ValueError, match=r"\(1000 bytes\) was freed already"):
        memory.free()
    device.allocate(0).free()
    with pytest.raises(ValueError, match="nbytes=-1"):
        device.allocate(-1)
    with pytest.raises(ValueError, match="address=0 "):
        device.download(0, 1)
    with pytest.raises(ValueError, match="not C-contiguous"):
        device.upload(16, np.zeros((4, 4))[:, 0])


def test_emulated_copies_stay_inside_allocations(emulated: Any) -> None:
    memory = emulated.allocate(100)
    calls: list[Callable[[], Any]] = [
        lambda: emulated.upload(memory.address, bytes(101)),
        lambda: emulated.download(memory.address - 1, 10),
        lambda: emulated.fill(memory.address + 99, 2, 0),
        lambda: emulated.copy(memory.address, 4096, 8),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="are not allocated"):
            call()


def test_new_emulated_memory_is_poison(emulated: Any) -> None:
    memory = emulated.allocate(64)
    assert np.isnan(to_host(emulated, memory, np.float16)).all()


def test_memory_is_freed_with_its_last_reference(emulated: Any) -> None:
    memory = emulated.allocate(64)
    address = memory.address
    del memory
    gc.collect()
    with pytest.raises(DeviceError, match="in the freed 64 bytes"):
        emulated.download(address, 64)


@pytest.mark.parametrize("step", ["bisect_right", "bisect_left"])
def test_memory_that_the_collector_frees_meanwhile_hides_no_other(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations are found, and freed ones are not, although garbage is collected in the middle of a search."""
    pool = emulated_memory.GuardedPool()
    kept = sorted((pool.allocate(514, at_start=False) for _ in range(9)), key=lambda memory: memory.address)
    garbage, addresses = [], [memory.address for memory in kept]
    search = getattr(emulated_memory.bisect, step)

    def collects(bases: list[int], address: int) -> Any:
        found = search(bases, address)
        garbage.clear()
        return found

    monkeypatch.setattr(emulated_memory.bisect, step, collects)
    for _ in range(3):
        garbage.append(kept.pop(0))
        if step == "bisect_left":
            kept.pop(1).free()
        for memory in kept:
            pool.check(memory.address, 514, "download")
    left = {memory.address for memory in kept}
    assert [bool(pool.find(address)) for address in addresses] == [address in left for address in addresses]


@pytest.mark.parametrize(
    "size, grid, block, shared, error, message",
    [
        (31, (1,), (32,), 0, TypeError, "add takes a structure of 32 bytes, not 31"),
        (40, (1,), (32,), 0, TypeError, "add takes a structure of 32 bytes, not 40"),
        (32, (0,), (32,), 0, ValueError, r"grid=\(0,\)"),
        (32, (1, 65536), (32,), 0, ValueError, r"grid=\(1, 65536\)"),
        (32, (1, 1, 1, 1), (32,), 0, ValueError, "1 to 3 sizes"),
        (32, (1,), (0,), 0, ValueError, r"block=\(0,\)"),
        (32, (1,), (16, 16, 65), 0, ValueError, r"block=\(16, 16, 65\)"),
        (32, (1,), (257,), 0, ValueError, "257 threads, at most 256"),
        (32, (1,), (32,), -1, ValueError, "shared_bytes=-1"),
        (32, (1,), (32,), 1 << 20, ValueError, "shared_bytes=1048576"),
    ],
)
def test_launch_is_checked(
    device: Device, size: int, grid: Any, block: Any, shared: int, error: Any, message: str
) -> None:
    add = device.function(KERNELS / "basic.cu", "add")
    with pytest.raises(error, match=message):
        add.launch(bytes(size), grid, block, shared)


def test_functions_and_devices_are_remembered(device: Device) -> None:
    assert open_device(device.kind) is device
    first = device.function(KERNELS / "basic.cu", "add")
    assert device.function(KERNELS / "basic.cu", "add") is first
    assert device.function(KERNELS / "basic.cu", "add", (("ELEMENT", "double"),)) is not first
    with pytest.raises(KeyError, match="no kernel subtract"):
        device.function(KERNELS / "basic.cu", "subtract")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.cu"):
        device.function("nowhere.cu", "add")


def test_every_stream_runs_work(device: Device) -> None:
    stream = device.new_stream()
    assert stream.device is device and stream.handle != device.default_stream.handle
    values = np.arange(1 << 16, dtype=np.float32)
    source, target = to_device(device, values), device.allocate(values.nbytes)
    add = device.function(KERNELS / "basic.cu", "add")
    arguments = struct.pack("QQQq", source.address, source.address, target.address, values.size)
    for used in (stream, device.adopt_stream(stream.handle), device.default_stream, None):
        device.fill(target.address, target.nbytes, 0, used)
        add.launch(arguments, (16,), (256,), 0, used)
        device.copy(source.address, target.address, 4, used)  # Element 0 is 0 in both.
        result = device.download(target.address, target.nbytes, used)
        np.testing.assert_array_equal(np.frombuffer(result, np.float32), 2 * values)
        device.upload(target.address, values, used)
        (used or device.default_stream).synchronize()
        assert (used or device.default_stream).done()
        np.testing.assert_array_equal(to_host(device, target, np.float32), values)
    device.synchronize()


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALDNN_EMULATION_SEED", "12")
    monkeypatch.setenv("DUALDNN_EMULATION_GUARD", "start")
    device = EmulatedDevice()
    assert (device.seed, device.guard) == (12, "start")
    assert device.allocate(100).address % 4096 == 0
    monkeypatch.setenv("DUALDNN_EMULATION_SEED", "-1")
    with pytest.raises(ValueError, match="DUALDNN_EMULATION_SEED='-1'"):
        EmulatedDevice()
    monkeypatch.delenv("DUALDNN_EMULATION_SEED")
    monkeypatch.setenv("DUALDNN_EMULATION_GUARD", "middle")
    with pytest.raises(ValueError, match="DUALDNN_EMULATION_GUARD='middle': expected end or start"):
        EmulatedDevice()
    device.guard = "middle"
    with pytest.raises(ValueError, match="guard='middle'"):
        device.allocate(100)


@pytest.mark.parametrize("text", ["abc", "0", "-3", "2000", ""])
def test_an_invalid_number_of_multiprocessors_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The number must be at least 1, because planners divide by it."""
    monkeypatch.setenv("DUALDNN_EMULATION_MULTIPROCESSORS", text)
    with pytest.raises(ValueError, match=f"DUALDNN_EMULATION_MULTIPROCESSORS='{text}': expected an integer from 1"):
        EmulatedDevice()


def test_threads_share_a_device(device: Device) -> None:
    add = device.function(KERNELS / "basic.cu", "add")
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        values = np.full(1000, number, np.float32)
        stream = device.new_stream()
        for _ in range(10):
            source, target = to_device(device, values), device.allocate(values.nbytes)
            add.launch(
                struct.pack("QQQq", source.address, source.address, target.address, 1000), (4,), (256,), 0, stream
            )
            result = device.download(target.address, target.nbytes, stream)
        results[number] = bool((np.frombuffer(result, np.float32) == 2 * number).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


def test_padding_is_looked_at_before_another_thread_launches(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is checked under the lock of launches: another launch may make the same input inaccessible."""
    alone = []
    looked_at = Allocation.changed_padding
    monkeypatch.setattr(Allocation, "changed_padding", lambda each: alone.append(launching.locked()) or looked_at(each))
    memory = to_device(emulated, np.ones(1024, np.float32))
    emulated.function(KERNELS / "basic.cu", "add").launch(
        struct.pack("QQQq", *[memory.address] * 3, 1024), (4,), (256,)
    )
    assert alone == [True]


EXIT = """
import struct, sys, threading
from pathlib import Path
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.errors import DeviceError
device = open_device(sys.argv[1])
add = device.function(Path(sys.argv[2]), "add")
memory, stream = device.allocate(4096), device.new_stream()
add.launch(struct.pack("QQQq", *[memory.address] * 3, 1024), (4,), (256,), 0, stream)
thread = threading.Thread(target=lambda: device.download(memory.address, 4096, stream))
thread.start()
thread.join()
if sys.argv[3] == "after a fault":
    try:
        add.launch(struct.pack("QQQq", 16, 16, 16, 1024), (4,), (256,), 0, stream)
        stream.synchronize()
    except DeviceError as error:
        print(error)
"""


@pytest.mark.parametrize("state", ["in order", "after a fault"])
def test_process_ends_well_with_memory_and_streams_alive(device: Device, state: str) -> None:
    command = [sys.executable, "-c", EXIT, device.kind, str(KERNELS / "basic.cu"), state]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert ("Error" in result.stderr, "memory access" in result.stdout) == (False, state == "after a fault")


def test_open_device_refuses_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="kind='tpu'"):
        open_device("tpu")
    with pytest.raises(DeviceUnavailable, match="index=1"):
        open_device("emulated", 1)
    if not gpu_is_usable():
        with pytest.raises(DeviceUnavailable, match=re.compile("PyCUDA|driver|GPU")):
            open_device("gpu")
