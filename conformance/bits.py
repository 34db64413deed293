"""Compare the bits of results: of an image alone and in batches, of solvers, and for numbers of multiprocessors.

``python -m dualdnn.conformance.bits emulated`` (or gpu) records hashes of this release for the cases of level release.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.accelerated.reproducible import IN_IMAGES
from dualdnn.accelerated.solver import SOLVER_FAMILIES, forcing
from dualdnn.api import cudnn as api
from dualdnn.api import operations as ops
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC

from .calls import Caller, sized
from .solvers import divided_among
from .trial import prepare

Array = np.ndarray[Any, Any]
IMAGES = 6  # images of the memory from which batches are taken
BATCHES = ((0, 1), (0, 2), (0, 6), (3, 1), (2, 3), (5, 1))  # first image and number of images
MULTIPROCESSORS = (132, 1, 48)
RECORDED = Path(__file__).with_name("reproducible.json")
HASHED = ("forward-ALGO_IMPLICIT", "data-", "bias-", "pooling-")  # operations without library functions


FORWARD, DATA = api.cudnnConvolutionFwdAlgo_t, api.cudnnConvolutionBwdDataAlgo_t
FILTER = api.cudnnConvolutionBwdFilterAlgo_t
CORRELATION = api.CUDNN_CROSS_CORRELATION
DEFAULT, FMA = api.CUDNN_DEFAULT_MATH, api.CUDNN_FMA_MATH
LAYOUTS = {"tf32-nchw": (FLOAT, NCHW, DEFAULT), "fma-nchw": (FLOAT, NCHW, FMA), "half-nhwc": (HALF, NHWC, DEFAULT)}
# Each shape has channels, filters, extent, window, stride and groups; "first" is a first layer, "each" is depthwise.
SHAPES = {
    "3x3": (16, 40, 6, 3, 1, 1),
    "1x1": (64, 24, 5, 1, 1, 1),
    "first": (3, 16, 9, 3, 2, 1),
    "each": (8, 8, 6, 3, 1, 8),
}


def convolution(kind: Any, algo: Any, layout: str, shape: str, images: int = 2) -> Any:
    """Return a convolution or one of its gradients."""
    (data_type, order, math), (channels, filters, extent, window, stride, groups) = LAYOUTS[layout], SHAPES[shape]
    padding, out = window // 2, (extent + 2 * (window // 2) - window) // stride + 1
    described = ops.ConvolutionSpec(
        CORRELATION, FLOAT, (padding,) * 2, (stride,) * 2, (1, 1), groups, math, api.cudnnReorderType_t(0)
    )
    x = ops.TensorSpec.packed(data_type, (images, channels, extent, extent), order)
    y = ops.TensorSpec.packed(data_type, (images, filters, out, out), order)
    w = ops.FilterSpec(data_type, order, (filters, channels // groups, window, window))
    operands = {
        ops.ConvolutionForward: (x, w, y),
        ops.ConvolutionBackwardData: (w, y, x),
        ops.ConvolutionBackwardFilter: (x, y, w),
    }
    return kind(described, algo, 0, 1.0, 0.0, *operands[kind])


def _within_images() -> dict[str, Any]:
    """Return operations that sum within one image."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FORWARD(0), FORWARD(1), FORWARD(2)):
                if algo != FORWARD(2) or order == NCHW:
                    found[f"forward-{algo.name[22:]}-{layout}-{shape}"] = convolution(
                        ops.ConvolutionForward, algo, layout, shape
                    )
            for gradient in (DATA(0), DATA(1)):
                if gradient != DATA(0) or order == NCHW:
                    found[f"data-{gradient.name[27:]}-{layout}-{shape}"] = convolution(
                        ops.ConvolutionBackwardData, gradient, layout, shape
                    )
        if layout == "tf32-nchw":
            continue
        for channels, extent in ((24, 7), (300, 1)):
            x = ops.TensorSpec.packed(data_type, (2, channels, extent, extent), order)
            what = f"{layout}-{channels}x{extent}"
            for mode in api.cudnnSoftmaxMode_t:
                given = (api.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, 0.0)
                found[f"softmax-{mode.name[19:]}-{what}"] = ops.SoftmaxForward(*given, x, x)
                found[f"softmax-gradient-{mode.name[19:]}-{what}"] = ops.SoftmaxBackward(*given, x, x, x)
        x, y = (ops.TensorSpec.packed(data_type, (2, 24, extent, extent), order) for extent in (8, 4))
        for pools in (
            api.CUDNN_POOLING_MAX,
            api.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        ):
            pooling = ops.PoolingSpec(pools, api.cudnnNanPropagation_t(0), (3, 3), (1, 1), (2, 2))
            found[f"pooling-{pools.value}-{layout}"] = ops.PoolingForward(pooling, 1.0, 0.0, x, y)
            found[f"pooling-gradient-{pools.value}-{layout}"] = ops.PoolingBackward(pooling, 1.0, 0.0, y, y, x, x)
            everything = replace(pooling, window=(8, 8), padding=(0, 0), stride=(1, 1))
            one = ops.TensorSpec.packed(data_type, (2, 24, 1, 1), order)
            found[f"pooling-{pools.value}-all-{layout}"] = ops.PoolingForward(everything, 1.0, 0.0, x, one)
        tangent = ops.ActivationSpec(api.CUDNN_ACTIVATION_TANH, api.cudnnNanPropagation_t(0), 0.0)
        found[f"activation-{layout}"] = ops.ActivationForward(tangent, 1.0, 0.0, x, x)
        statistics = ops.TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"normalization-{layout}"] = ops.BatchNormalizationForwardInference(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1e-5
        )
    return found


SPATIAL = api.CUDNN_BATCHNORM_SPATIAL
WITHIN_IMAGES = _within_images()


def _over_images() -> dict[str, Any]:
    """Return operations that sum over the images of a batch."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FILTER(0), FILTER(1)):
                found[f"filter-{algo.value}-{layout}-{shape}"] = convolution(
                    ops.ConvolutionBackwardFilter, algo, layout, shape, 9
                )
        x = ops.TensorSpec.packed(data_type, (9, 24, 7, 7), order)
        statistics = ops.TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"bias-{layout}"] = ops.ConvolutionBackwardBias(
            1.0, 0.0, x, ops.TensorSpec.packed(data_type, (1, 24, 1, 1), order)
        )
        found[f"training-{layout}"] = ops.BatchNormalizationForwardTraining(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1.0, None, 1e-5, None
        )
    return found


OVER_IMAGES = _over_images()


def with_images(operation: Any, images: int) -> Any:
    """Return the operation for another number of images."""

    def resized(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dims=(images, *spec.dims[1:]))

    return replace(
        operation, **{name: resized(getattr(operation, name)) for name in IN_IMAGES[type(operation).__name__]}
    )


def results(caller: Caller, operation: Operation, memory: dict[str, Array]) -> dict[str, Array]:
    """Return the bytes of the outputs of one call on this memory."""
    operation = sized(caller, operation)
    handle, buffers = caller.handle, dict[str, Any]()
    for name in operation.operands:
        nbytes = operation.nbytes(name)
        content = np.zeros(nbytes, np.uint8) if name in operation.raw else memory[name]
        buffers[name] = handle.to_device(content) if nbytes else None
    caller(operation, buffers)
    return {
        name: buffers[name].to_host(np.uint8, buffers[name].nbytes)
        for name in operation.outputs
        if buffers.get(name) is not None
    }


def hashed(found: dict[str, Array]) -> str:
    """Return a short hash of outputs."""
    joined = b"".join(name.encode() + found[name].tobytes() for name in sorted(found))
    return hashlib.sha256(joined).hexdigest()[:16]


def hash_of(caller: Caller, operation: Operation) -> str:
    """Return the hash of the outputs of a call on its random inputs."""
    return hashed(results(caller, operation, memory_of(operation)))


def recorded() -> dict[str, dict[str, str]]:
    """Return the recorded hashes: architecture -> name of an operation of the cases -> hash."""
    found: dict[str, dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def memory_of(operation: Operation, seed: int = 0) -> dict[str, Array]:
    """Return random inputs and zeros in all else."""
    found = prepare(operation, "normal", seed)
    return {name: found[name] if name in operation.reads else np.zeros_like(found[name]) for name in operation.operands}


def of_batches(caller: Caller, operation: Any) -> list[str]:
    """Return which images of BATCHES have other bits than in the first batch that has them."""
    names = IN_IMAGES[type(operation).__name__]
    every = memory_of(with_images(operation, IMAGES))
    seen: dict[tuple[str, int], bytes] = {}
    wrong = []
    for first, images in BATCHES:
        batch = with_images(operation, images)
        memory = {name: _images(every[name], first, images) if name in names else every[name] for name in every}
        for name, found in results(caller, batch, memory).items():
            for i, image in enumerate(found.reshape(images, -1), first):
                if seen.setdefault((name, i), image.tobytes()) != image.tobytes():
                    wrong.append(f"{name} of image {i} in a batch of {images} from image {first} on")
    return wrong


def _images(content: Array, first: int, images: int) -> Array:
    return np.ascontiguousarray(content.reshape(IMAGES, -1)[first : first + images].reshape(-1))


def of_multiprocessors(caller: Caller, operation: Operation) -> list[str]:
    """Return for which numbers of multiprocessors the result has other bits than for the first."""
    memory, found = memory_of(operation), dict[int, str]()
    for count in MULTIPROCESSORS:
        with divided_among(caller.handle, count):
            found[count] = hashed(results(caller, operation, memory))
    return [f"{count} multiprocessors: {found[count]}" for count in found if found[count] != found[MULTIPROCESSORS[0]]]


def of_solvers(caller: Caller, operation: Operation) -> list[str]:
    """Return the pairs of solvers that declare one order of sums and give different bits."""
    device, memory = caller.handle.backend.planned_on, memory_of(operation)
    family = SOLVER_FAMILIES[type(operation)]
    problem, first, wrong = family.problem(operation, device), dict[Any, tuple[str, str]](), []
    for solver in family.solvers:
        order = solver.summation_order(problem) if solver.serves(problem) else None
        if order is None:
            continue
        with by_solver(caller, solver.name):
            found = hashed(results(caller, operation, memory))
        name, expected = first.setdefault(order, (solver.name, found))
        if found != expected:
            wrong.append(f"{solver.name} and {name}, which both add in {order}")
    return wrong


@contextmanager
def by_solver(caller: Caller, name: str) -> Iterator[None]:
    """Make calls by a solver in this scope."""
    caller.handle.answers.clear()
    with forcing(name):
        yield
    caller.handle.answers.clear()


def solvers_of(caller: Caller, operation: Operation) -> Sequence[str]:
    """Return the solvers by which a subject may compute an operation; no solver for a foreign library."""
    solvers = getattr(getattr(caller.handle, "backend", None), "solvers", None)
    return solvers(operation) if solvers else ()


def record(device: str) -> dict[str, dict[str, str]]:
    """Return the recorded hashes, with new ones of a device at level release."""
    handle = api.cudnnCreate(backend="accelerated", device=device, reproducible="release")
    caller = Caller(api, handle)
    operations = {**WITHIN_IMAGES, **OVER_IMAGES}
    found = {name: hash_of(caller, operations[name]) for name in operations if name.startswith(HASHED)}
    return recorded() | {handle.backend.planned_on.architecture: found}


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
