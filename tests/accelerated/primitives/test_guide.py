"""Compiles and runs the kernel of docs/writing_a_kernel.md."""

from __future__ import annotations

import re
from ctypes import c_float, c_int
from pathlib import Path

import numpy as np
import pytest
from dualdnn.accelerated.plans import Launch, pointers, structure
from dualdnn.accelerated.primitives.geometry import FastDivmod, blocks
from dualdnn.accelerated.runtime.devices import open_device

GUIDE = Path(__file__).parents[3] / "docs/writing_a_kernel.md"
CHANNELS = 4
WINDOW = 16


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    path = tmp_path_factory.mktemp("guide") / "window_sum.cu"
    path.write_text(re.search(r"```cuda\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1])
    definitions = {"ELEMENT": "float", "COMPUTE": "float", "CHANNELS": str(CHANNELS), "WINDOW": str(WINDOW)}
    return open_device("emulated").function(path, "normalization_window_sum", tuple(definitions.items()))


@pytest.mark.parametrize("dims", [(2, 11, 3, 5), (3, 4, 1, 1), (1, 1, 17, 19)], ids=str)
@pytest.mark.parametrize("window", [1, 2, 5, 16])
def test_sums_of_squares_over_windows_of_channels(function, dims, window):
    images, channels, plane = dims[0], dims[1], dims[2] * dims[3]
    groups, before = -(-channels // CHANNELS), (window - 1) // 2
    x = np.random.default_rng(window).standard_normal(dims, np.float32)
    device = function.device
    source, target = device.allocate(x.nbytes), device.allocate(x.nbytes)
    device.upload(source.address, x.reshape(-1).view(np.uint8))
    arguments = structure(
        *pointers(2), ("factor", c_float(0.5)),
        ("images", c_int(images)), ("channels", c_int(channels)), ("window", c_int(window)), ("before", c_int(before)),
        ("pixels", FastDivmod.of(plane)), ("groups", FastDivmod.of(groups)),
    )  # fmt: skip
    launch = Launch(function, arguments, ("x", "y"), blocks(images * groups * plane))
    launch.start((source.address, target.address), None)
    device.synchronize()
    found = np.frombuffer(device.download(target.address, x.nbytes), np.float32).reshape(dims)
    padded = np.pad(x.astype(float) ** 2, ((0, 0), (before, window - 1 - before), (0, 0), (0, 0)))
    expected = 0.5 * sum(padded[:, i : i + channels] for i in range(window))
    np.testing.assert_allclose(found, expected, rtol=window * 2.0**-23)
