"""Tests that the emulated device finds each race in any order of the threads, and none in the corrected kernels."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dualdnn.accelerated.primitives.tma import UnswizzledTiledMap
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.errors import DeviceError

SOURCE = Path(__file__).parent / "kernels" / "races.cu"
TEXT = SOURCE.read_text()
KERNELS = re.findall(r"^(?:KERNEL\(|extern.* void )(\w+)", TEXT, re.MULTILINE)
STORED = ("stored", "written_while_stored")
THREADS = {"handed_on": 96, "stored": 32, "written_while_stored": 32, "products": 128, "products_of_registers": 128}
SHARED_BYTES = 20480
# The kernels of these cases synchronize the most; `make races` runs all cases.
CASES = (
    "softmax/test_many_long_rows[9x2x94x130-CUDNN_DATA_FLOAT]",
    "convolution/test_few_channels[two channels-CUDNN_TENSOR_NCHW-FLOAT]",
)


@pytest.fixture(scope="module")
def finder() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALDNN_EMULATION_RACES", "1")
        return EmulatedDevice()


def run(device: Any, name: str, right: bool) -> None:
    memory = device.allocate(2048)
    device.upload(memory.address, np.ones(512, np.float32).view(np.uint8))
    arguments = struct.pack("Qii", memory.address, right, 0)
    if name in STORED:
        tensor = UnswizzledTiledMap("float", (32, 1, 1, 1), (128, 128, 128), (32, 1, 1, 1))
        arguments = arguments.ljust(64, b"\0") + device.tensor_map(tensor, memory.address)
    device.function(SOURCE, name).launch(
        arguments, (1 if name in STORED else 4,), (THREADS.get(name, 64),), SHARED_BYTES
    )


def lines_of(name: str) -> list[str]:
    """Return races.cu:LINE for each line that is marked as a part of the kernel's race."""
    return [f"races.cu:{i}" for i, line in enumerate(TEXT.splitlines(), 1) if f" {name}: " in line.partition("//")[2]]


def test_all_kernels_are_known() -> None:
    assert len(KERNELS) == TEXT.count("\nKERNEL(") + TEXT.count("\nextern ") > 25
    assert all(lines_of(name) for name in KERNELS)


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("name", KERNELS)
def test_race_is_reported_with_both_lines(finder: Any, monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    monkeypatch.setattr(finder, "seed", seed)
    with pytest.raises(DeviceError, match=f"(?s)^{name} failed in block .*race (at byte|in global)") as caught:
        run(finder, name, right=False)
    assert all(re.search(rf"{line}\b", str(caught.value)) for line in lines_of(name)), str(caught.value)


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_reported_of_right_kernels(
    finder: Any, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr(finder, "seed", seed)
    run(finder, name, right=True)


def test_a_write_without_a_proxy_fence_is_reported(finder: Any) -> None:
    with pytest.raises(
        DeviceError, match=r"fence_proxy_async\(\) has to stand between this read behind the write by thread 0"
    ):
        run(finder, "stored", right=False)


@pytest.mark.long  # `make races` runs all cases like this.
@pytest.mark.parametrize("case", CASES)
def test_kernels_of_the_library_have_no_races(tmp_path: Path, case: str) -> None:
    command = [sys.executable, "-m", "dualdnn.conformance", "conformance", "--subject", "accelerated:emulated"]
    environment = os.environ | {"DUALDNN_EMULATION_RACES": "1"}
    result = subprocess.run(
        [*command, "--case", case, "--out", str(tmp_path)], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0 and "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("text", ["yes", ""])
def test_an_invalid_setting_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DUALDNN_EMULATION_RACES", text)
    with pytest.raises(ValueError, match=f"DUALDNN_EMULATION_RACES='{text}': expected 0 or 1"):
        EmulatedDevice()
