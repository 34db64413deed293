"""Makes forward convolutions for the tests in this folder, and runs and judges operations on the emulated device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dualdnn.accelerated.solver import SOLVER_FAMILIES, SolverFamily
from dualdnn.api.enumerations import (
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, INT8, INT32, NCHW, UINT8
from dualdnn.conformance.trial import PATTERN, prepare
from dualdnn.reference import judge

IMPLICIT, PRECOMPUTED, EXPLICIT, _, FFT, FFT_TILING, WINOGRAD, NONFUSED = cudnnConvolutionFwdAlgo_t
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
MARGIN = 64  # bytes of guard pattern before and after each operand
UNALIGNED = 2  # elements by which an operand misses 16-byte alignment


def convolution(
    algo, x, filters, taps, *, data_type=FLOAT, layout=NCHW, result=None, filter_layout=None, stride=1, dilation=1, groups=1,
    padding=1, math=DEFAULT, blend=(1.0, 0.0),
):  # fmt: skip
    rank = len(taps)
    integer = data_type in (INT8, UINT8)
    w_type, y_type, compute = (INT8, FLOAT, INT32) if integer else (data_type, data_type, data_type)
    if data_type in (HALF, BFLOAT16):
        compute = FLOAT
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, compute, (padding,) * rank, (stride,) * rank, (dilation,) * rank,
        groups, math, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    w = FilterSpec(w_type, layout if filter_layout is None else filter_layout, (filters, x[1] // groups, *taps))
    y = TensorSpec.packed(y_type, spec.output_dims(x, w.dims), layout if result is None else result)
    return ConvolutionForward(spec, algo, 0, *blend, TensorSpec.packed(data_type, x, layout), w, y)


def backwards(operation):
    """Return the operation with its filter mirrored."""
    spec = replace(operation.convolution, mode=cudnnConvolutionMode_t.CUDNN_CONVOLUTION)
    return replace(operation, convolution=spec)


def with_pitch(operation, pitch):
    """Return the operation with ``pitch`` elements from one row of x to the next."""
    x = operation.x
    strides = (x.dims[1] * x.dims[2] * pitch, x.dims[2] * pitch, pitch, 1)
    return replace(operation, x=TensorSpec(x.data_type, x.dims, strides))


def family_of(operation):
    return SOLVER_FAMILIES[type(operation)]


def check(backend, operation, only=None, *, shift=0, shifted=None, inputs="normal", problem=None, made=None):
    """Run an operation and judge it, assert that nothing around its operands was written, and return its plan.

    only: the solver that must serve, or its name. shift: elements by which operands miss 16-byte alignment. Only the
    operand ``shifted`` is shifted, if given. problem, made: replace the operation's own problem or plan.
    """
    plan = made
    if plan is None:
        family = family_of(operation)
        if only is not None and not isinstance(only, str):
            family, only = SolverFamily(family.problem, (only, *family.solvers)), only.name
        problem = problem or family.problem(operation, backend.device)
        if "workSpace" in operation.raw:
            operation = replace(operation, workspace_bytes=family.enough(problem, only))
        plan = family.plan(problem, only)
    before = prepare(operation, inputs, 0)
    operands, buffers = [], {}
    for name in operation.operands:
        size = before[name].size
        step = 1 if name in operation.raw else operation.tensor(name).scalar_bytes
        start = MARGIN + (shift * step if shifted in (None, name) else 0)
        memory = np.full(start + size + MARGIN, PATTERN, np.uint8)
        memory[start : start + size] = before[name]
        buffers[name] = (backend.to_device(memory), start)
        operands.append(buffers[name][0].slice(start, size) if size else None)
    plan(operands, None)
    after = {}
    for name, (buffer, start) in buffers.items():
        now, size = buffer.to_host(np.uint8, buffer.nbytes), before[name].size
        assert (now[:start] == PATTERN).all() and (now[start + size :] == PATTERN).all(), (plan.solver, name)
        after[name] = now[start : start + size].copy()
    verdict = judge(operation, before, after)
    assert verdict.agrees, f"{plan.solver}\n{verdict.explanation()}"
    assert not verdict.mistrusted
    return plan


def kernels(plan):
    """Return the names of a plan's kernels."""
    return [launch.function.name for launch, _ in plan.steps]
