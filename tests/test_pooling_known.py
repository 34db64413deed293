"""How the kernels for known windows divide a call, and when they serve it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualdnn.accelerated import pooling_known
from dualdnn.accelerated.backend import AcceleratedBackend, DeviceOperand
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.layouts import laid_out


class Listing:
    """Stands for a device: notes the kernels that plans ask for."""

    multiprocessors = 132

    def __init__(self) -> None:
        self.kernels: list[tuple[str, dict[str, str]]] = []

    def function(self, _source: str, kernel: str, definitions: Any) -> None:
        self.kernels.append((kernel, dict(definitions)))


def operation_of(
    backward: bool, mode: Mode, dims: Any, window: int, stride: int, padding: int, layout: str, data_type: Any = FLOAT
) -> Any:
    spatial = len(dims) - 2
    spec = PoolingSpec(
        mode, Nan.CUDNN_NOT_PROPAGATE_NAN, (window,) * spatial, (padding,) * spatial, (stride,) * spatial
    )
    pooled = (1 + (size + 2 * padding - window) // stride for size in dims[2:])
    x, y = laid_out(data_type, dims, layout), laid_out(data_type, (*dims[:2], *pooled), layout)
    return PoolingBackward(spec, 1.0, 0.0, y, y, x, x) if backward else PoolingForward(spec, 1.0, 0.0, x, y)


def definitions_of(operation: Any) -> tuple[str, dict[str, str], AlignedPlan]:
    listing = Listing()
    found = plan(operation, listing)
    kernel, definitions = listing.kernels[0]
    assert isinstance(found, AlignedPlan)
    return kernel, definitions, found


DIMS = [(64, 256, 56, 56), (8, 64, 14, 14), (31, 67, 37, 41), (3, 5, 6, 62), (64, 3, 224, 224), (2, 24, 9, 12, 20)]


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps", "chwn"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("window", sorted(pooling_known.WINDOWS), ids=str)
@pytest.mark.parametrize("kind", ["forward", "average", "maximum"])
def test_accesses_are_aligned_and_tiles_cover_everything(kind, window, data_type, dims, layout):
    """Every access of several elements begins at a multiple of them, and does not reach beyond its row."""
    mode = Mode.CUDNN_POOLING_MAX if kind == "maximum" else Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    operation = operation_of(kind != "forward", mode, dims, *window, layout, data_type)
    kernel, definitions, found = definitions_of(operation)
    assert kernel.endswith(kind)
    number = {name: int(value) for name, value in definitions.items() if value.lstrip("-").isdigit()}
    for name in ("x", "y") if kind == "forward" else ("x", "dx", "dy"):
        tensor = operation.tensor(name)
        pack = number["LANES"] * number["X_PACK" if name in ("x", "dx") else "Y_PACK"]
        contiguous = next(i for i, stride in enumerate(tensor.strides) if stride == 1 and tensor.dims[i] > 1)
        assert pack == 1 or tensor.dims[contiguous] % pack == 0
        others = [s for i, s in enumerate(tensor.strides) if i != contiguous and tensor.dims[i] > 1]
        assert pack == 1 or all(stride % pack == 0 for stride in others)
        assert found.masks[operation.operands.index(name)] == pack * tensor.scalar_bytes - 1
    assert number["TILE2"] * number["S2"] % number["X_PACK"] == 0 and number["TILE2"] % number["Y_PACK"] == 0
    launch = found.steps[0][0]
    threads = launch.grid[0] * launch.block[0]
    elements = (operation.y if kind == "forward" else operation.x).count
    each = number["TILE1"] * number["TILE2"] * number["LANES"]
    assert threads * each * (1 if kind == "forward" else number["S1"] * number["S2"]) >= elements


def test_other_windows_have_other_kernels():
    for window, stride, padding in [(5, 2, 1), (3, 2, 2), (1, 1, 0), (3, 3, 0)]:
        listing = Listing()
        plan(operation_of(False, Mode.CUDNN_POOLING_MAX, (2, 3, 20, 20), window, stride, padding, "nchw"), listing)
        assert "known" not in listing.kernels[0][0]


def test_windows_without_inputs_are_left_to_the_other_kernels():
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (2, 2), (0, 0), (2, 2))
    listing = Listing()
    plan(
        PoolingForward(spec, 1.0, 0.0, TensorSpec.packed(FLOAT, (1, 1, 4, 4)), TensorSpec.packed(FLOAT, (1, 1, 3, 2))),
        listing,
    )
    assert "known" not in listing.kernels[0][0]


def test_distances_beyond_32_bits():
    strides = (2**33, 2**20, 64, 1)
    x, y = TensorSpec(FLOAT, (2, 3, 8, 8), strides), TensorSpec.packed(FLOAT, (2, 3, 4, 4))
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (2, 2), (0, 0), (2, 2))
    assert definitions_of(PoolingForward(spec, 1.0, 0.0, x, y))[1]["OFFSET"] == "long long"
    near = TensorSpec(FLOAT, (2, 3, 8, 8), (2**21, 2**20, 64, 1))
    assert definitions_of(PoolingForward(spec, 1.0, 0.0, near, y))[1]["OFFSET"] == "int"


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_operands_at_any_address(layout, offset):
    """Those that do not begin at a multiple of an access are served too, with the same result."""
    backend = AcceleratedBackend("emulated")
    operation = operation_of(False, Mode.CUDNN_POOLING_MAX, (2, 8, 6, 8), 2, 2, 0, layout)
    numbers = np.random.default_rng(0).standard_normal(operation.x.count).astype(np.float32)
    results = []
    for shift in (0, offset):
        x, y = backend.allocate(4 * (numbers.size + 4)), backend.allocate(4 * (operation.y.count + 4))
        backend.device.upload(x.address + 4 * shift, numbers.tobytes())
        operands = [DeviceOperand(buffer.address + 4 * shift, None) for buffer in (x, y)]
        backend.prepare(operation)(operands, backend.device.default_stream)
        results.append(y.to_host(np.float32, operation.y.count + 4)[shift : shift + operation.y.count])
    assert np.array_equal(*results)
