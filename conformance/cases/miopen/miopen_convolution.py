"""Holds cases of the second document: convolutions (rows 14 to 28) in the order that MIOpen demands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn, miopen
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.miopen.convolution import BACKWARD_DATA, BACKWARD_WEIGHTS, FORWARD
from dualdnn.api.miopen.status import BAD_PARM, NOT_IMPLEMENTED, UNKNOWN_ERROR, UNSUPPORTED_OP
from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.answers import Answers
from dualdnn.api.operations.specs import FLOAT, NCHW
from dualdnn.conformance.calls.miopen import convolution, found, tensor
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.miopen_fixtures import DIMS, ONE_AND_ZERO, available, filled

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

pytestmark = pytest.mark.ours


@pytest.fixture
def handle(miopen_handle: Any) -> Any:
    """Yield a MIOpen handle in place of cuDNN's."""
    return miopen_handle


def forward_operation(
    x: Any = (2, 3, 6, 5),
    w: Any = (4, 3, 3, 2),
    padding: Any = (1, 0),
    stride: Any = (1, 2),
    dilation: Any = (1, 1),
    algo: Any = None,
) -> ConvolutionForward:
    default = cudnnReorderType_t.CUDNN_DEFAULT_REORDER
    spec = ConvolutionSpec(cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, padding, stride, dilation, 1,
                           cudnnMathType_t.CUDNN_FMA_MATH, default)  # fmt: skip
    y = TensorSpec.packed(FLOAT, spec.output_dims(x, w))
    chosen = algo or next(iter(FORWARD.algorithms.values()))
    return ConvolutionForward(spec, chosen, 0, 1.0, 0.0, TensorSpec.packed(FLOAT, x), FilterSpec(FLOAT, NCHW, w), y)


def problem(handle: Any, o: Any) -> Any:
    """Return (descriptors of x, w, y and the convolution, memory of the first three) of an operation."""
    descriptors = tensor(o.x), tensor(o.w.dims), tensor(o.y), convolution(o.convolution)
    return descriptors, [filled(handle, *spec.dims) for spec in (o.x, o.w, o.y)]


@shows("miopenGuide/c05", "miopenGuide/c06")
def test_no_convolution_without_find(subject: Subject, handle: Any, denied: Any) -> None:
    o = forward_operation()
    (x, w, y, described), memory = problem(handle, o)

    def convolve(on: Any = handle) -> None:
        algo = miopen.miopenConvolutionFwdAlgoGEMM
        miopen.miopenConvolutionForward(
            on, 1.0, x, memory[0], w, memory[1], described, algo, 0.0, y, memory[2], None, 0
        )

    denied(UNKNOWN_ERROR, "miopenGuide/c05", convolve, unchanged=memory[2])
    found(handle, o, dict(zip("xwy", memory, strict=True)))
    other = miopen.miopenCreate(backend=subject.backend, device=subject.device)
    denied(UNKNOWN_ERROR, "miopenGuide/c05", lambda: convolve(other))  # Another handle has not searched.
    miopen.miopenDestroy(other)
    miopen.miopenInitConvolutionDescriptor(described, miopen.miopenConvolution, 1, 1, 1, 2, 1, 1)
    y = tensor((2, 4, 6, 3))
    denied(UNKNOWN_ERROR, "miopenGuide/c05", convolve)  # A changed descriptor makes another problem.


@shows(
    "miopenGuide/c06", "miopenFindConvolutionForwardAlgorithm/c01-c03", "miopenConvolutionForwardGetWorkSpaceSize/c01"
)
def test_the_order_of_convolution_calls(handle: Any, denied: Any) -> None:
    o = forward_operation()
    (x, w, y, described), memory = problem(handle, o)

    def find(count: int = 8, workspace: Any = None, size: int = 0) -> Any:
        return miopen.miopenFindConvolutionForwardAlgorithm(
            handle, x, memory[0], w, memory[1], described, y, memory[2], count, workspace, size, False
        )

    denied(BAD_PARM, "miopenFindConvolutionForwardAlgorithm/c02", find, unchanged=memory[2])
    denied(BAD_PARM, "c01", miopen.miopenConvolutionForwardGetWorkSpaceSize,
           handle, x, w, described, y)  # fmt: skip  # w comes first
    size = miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, described, y)
    denied(BAD_PARM, "miopenFindConvolutionForwardAlgorithm/c01", find, 0)
    before = memory[2].to_host(np.float32, o.y.dims)
    workspace = handle.allocate(size) if size else None
    count, results = find(8, workspace, size)
    assert count == len(results) >= 1 and all(result.time >= 0 for result in results)
    assert max(result.memory for result in results) == size
    assert [r.time for r in results] == sorted(r.time for r in results)
    assert len({r.fwd_algo for r in results}) == count and find(1, workspace, size).returnedAlgoCount == 1
    assert not np.array_equal(before, memory[2].to_host(np.float32, o.y.dims))  # The search writes to y.


@shows("miopenFindConvolutionForwardAlgorithm/c03")
def test_the_fastest_are_found(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find returns the fastest algorithms if fewer results are requested than exist."""
    o = forward_operation()
    (x, w, y, described), memory = problem(handle, o)
    size = miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, described, y)
    workspace = handle.allocate(size) if size else None

    def found(count: Any) -> Any:
        times = iter(range(40, 0, -1))
        monkeypatch.setattr(handle.cudnn.backend, "algorithm_time", lambda *_: float(next(times)))
        return miopen.miopenFindConvolutionForwardAlgorithm(
            handle, x, memory[0], w, memory[1], described, y, memory[2], count, workspace, size, False
        ).perfResults

    every = found(8)
    assert len({entry.time for entry in every}) == len(every) > 1
    assert found(1) == every[:1] and every[0].time == min(entry.time for entry in every)


@shows("miopenGuide/c11", "miopenGetConvolutionForwardOutputDim/c01", "miopenInitConvolutionDescriptor/c01",
       "miopenGetConvolutionDescriptor/c01", "miopenCreateConvolutionDescriptor/c01")  # fmt: skip
def test_filters_are_tensors(subject: Subject, denied: Any) -> None:
    described = miopen.miopenCreateConvolutionDescriptor()
    get, dims = miopen.miopenGetConvolutionDescriptor, miopen.miopenGetConvolutionForwardOutputDim
    denied(BAD_PARM, "c01", get, described)
    for wrong in ((-1, 0, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1), (0, 0, 1, 1, 1, 0)):
        denied(BAD_PARM, "c01", miopen.miopenInitConvolutionDescriptor, described, 0, *wrong)
    miopen.miopenInitConvolutionDescriptor(described, miopen.miopenConvolution, 1, 0, 1, 2, 1, 2)
    assert get(described) == (miopen.miopenConvolution, 1, 0, 1, 2, 1, 2)
    assert tuple(dims(described, tensor((2, 3, 6, 7)), tensor((4, 3, 3, 2)))) == (2, 4, 6, 3)
    denied(BAD_PARM, "c01", dims, described, tensor((2, 3, 6, 7)), tensor((4, 2, 3, 2)))


@shows("miopenInitConvolutionDescriptor/c02")
def test_transposed_convolutions_are_refused(subject: Subject, denied: Any) -> None:
    described = miopen.miopenCreateConvolutionDescriptor()
    denied(NOT_IMPLEMENTED, "c02", miopen.miopenInitConvolutionDescriptor, described,
           miopen.miopenTranspose, 0, 0, 1, 1, 1, 1)  # fmt: skip


@shows(*(f"miopenConvolution{name}GetWorkSpaceSize/c01" for name in ("Forward", "BackwardData", "BackwardWeights")))
@pytest.mark.parametrize("name", ["Forward", "BackwardData", "BackwardWeights"])
def test_the_workspace_is_that_of_the_most_demanding_algorithm(
    handle: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The answer is the largest workspace of all algorithms that take the problem.

    A handle remembers sizes, so each query has its own problem.
    """
    size, asked = getattr(miopen, f"miopenConvolution{name}GetWorkSpaceSize"), set()
    for most in (-1, 1):
        o = forward_operation(x=(1, 2, 9, 10 + most), w=(3, 2, 3, 3), padding=(1, 1), stride=(1, 1))
        x, w, y = (tensor(spec.dims) for spec in (o.x, o.w, o.y))
        first, second, third = {"Forward": (w, x, y), "BackwardData": (y, w, x), "BackwardWeights": (y, x, w)}[name]
        with monkeypatch.context() as patched:
            patched.setattr(handle.cudnn, "answers", Answers())  # The handle forgets what the true backend answered.
            needs = lambda op, most=most: asked.add(int(op.algo)) or 1000 + most * int(op.algo)  # noqa: E731
            patched.setattr(handle.backend, "workspace_bytes", needs)
            largest = size(handle, first, second, convolution(o.convolution), third)
        assert len(asked) > 1 and largest == 1000 + max(most * algo for algo in asked)


@shows("miopenConvolutionForward/c01")
@pytest.mark.parametrize("algo", list(FORWARD.algorithms.values()), ids=lambda a: a.name)
@pytest.mark.parametrize(
    "shape",
    [{}, {"w": (5, 3, 3, 3), "padding": (1, 1), "stride": (1, 1)}, {"dilation": (2, 1), "padding": (2, 2)}],
    ids=["plain", "same", "dilated"],
)
def test_convolution_forward(computes: Any, algo: Any, shape: Any) -> None:
    try:
        computes(forward_operation(algo=algo, **shape))
    except LookupError as missing:
        pytest.skip(f"{missing}: cuDNN's algorithm of this name does not take the problem")


@shows("miopenConvolutionForward/c02-c04")
def test_what_find_returned_decides(handle: Any, denied: Any) -> None:
    o = forward_operation(x=(1, 2, 9, 9), w=(3, 2, 3, 3), padding=(1, 1), stride=(1, 1))
    memory = dict(zip("xwy", (filled(handle, *spec.dims) for spec in (o.x, o.w, o.y)), strict=True))
    (x, w, described, y), workspace, size, results = found(handle, o, memory)
    there = {result.fwd_algo: result.memory for result in results.perfResults}
    absent = next(algo for algo in FORWARD.algorithms if algo not in there)

    def convolve(algo: Any, alpha: float = 1.0, beta: float = 0.0, space: Any = workspace, room: Any = size) -> None:
        operands = (x, memory["x"], w, memory["w"], described, algo, beta, y, memory["y"], space, room)
        miopen.miopenConvolutionForward(handle, alpha, *operands)

    fastest = results.perfResults[0].fwd_algo
    denied(BAD_PARM, "miopenConvolutionForward/c02", convolve, absent, unchanged=memory["y"])
    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenConvolutionForward/c03", convolve, fastest, alpha, beta, unchanged=memory["y"])
    problem = next(iter(handle.found))
    handle.found[problem][fastest] = size + 1  # The handle then expects a workspace for this algorithm.
    denied(BAD_PARM, "miopenConvolutionForward/c04", convolve, fastest, unchanged=memory["y"])
    denied(BAD_PARM, "miopenConvolutionForward/c04", convolve, fastest, 1.0, 0.0, None, size + 1, unchanged=memory["y"])


SHAPES = {"x": (2, 3, 6, 5), "w": (4, 3, 3, 2), "y": (2, 4, 6, 2)}
# Each direction has its table, its name in MIOpen, the letters of the first and second operand and the result in
# MIOpen's order, and the order in which GetWorkSpaceSize takes the first two.
DIRECTIONS = {
    "Forward": (FORWARD, "Forward", "xwy", (1, 0)),
    "BackwardData": (BACKWARD_DATA, "BackwardData", "ywx", (0, 1)),
    "BackwardWeights": (BACKWARD_WEIGHTS, "BackwardWeights", "yxw", (0, 1)),
}


def shown_by(name: str) -> Any:
    find, get = f"miopenFindConvolution{name}Algorithm", f"miopenConvolution{name}GetWorkSpaceSize"
    clauses = (
        [f"miopenConvolution{name}/c0{n}" for n in (1, 2, 3, 4)] + [f"{find}/c0{n}" for n in (1, 2, 3)] + [f"{get}/c01"]
    )
    marks = [shows(*clauses), available(find, get, f"miopenConvolution{name}")]
    return pytest.param(name, marks=marks, id=name)


@shows("miopenConvolutionForwardGetWorkSpaceSize/c01")
def test_the_workspace_of_what_no_algorithm_takes(handle: Any, denied: Any) -> None:
    """A result of wrong dimensions is refused, because no algorithm computes it."""
    (x, w, _, described), *_ = problem(handle, forward_operation())
    wider = tensor((2, 4, 6, 4))
    denied(UNSUPPORTED_OP, "c01", miopen.miopenConvolutionForwardGetWorkSpaceSize, handle, w, x, described, wider)


@pytest.mark.parametrize("name", [shown_by(name) for name in DIRECTIONS])
def test_the_directions_of_convolution(handle: Any, denied: Any, name: Any) -> None:
    direction, call, letters, first = DIRECTIONS[name]
    described = convolution(forward_operation().convolution)
    descriptors = [tensor(SHAPES[letter]) for letter in letters]
    a, b, result = (filled(handle, *SHAPES[letter]) for letter in letters)
    (da, db), out = descriptors[:2], descriptors[2]
    get, find, run = (getattr(miopen, text) for text in (f"miopenConvolution{call}GetWorkSpaceSize", f"miopenFindConvolution{call}Algorithm", f"miopenConvolution{call}"))  # fmt: skip

    def found_there(count: int = 8, space: Any = None, size: int = 0) -> Any:
        return find(handle, da, a, db, b, described, out, result, count, space, size, False)

    clause = f"miopenFindConvolution{call}Algorithm"
    denied(BAD_PARM, f"{clause}/c02", found_there, unchanged=result)
    size = get(handle, descriptors[first[0]], descriptors[first[1]], described, out)
    space = handle.allocate(size) if size else None
    denied(BAD_PARM, f"{clause}/c01", found_there, 0, unchanged=result)
    before = result.to_host(np.uint8, result.nbytes)
    results = found_there(8, space, size).perfResults
    assert results and not np.array_equal(before, result.to_host(np.uint8, result.nbytes))
    times = [entry.time for entry in results]
    assert all(entry.memory <= size for entry in results)
    assert times == sorted(times) and len(found_there(1, space, size).perfResults) == 1
    there = {entry.algorithm: entry.memory for entry in results}

    def convolve(algo: Any, alpha: float = 1.0, beta: float = 0.0, room: Any = size, made: Any = result) -> None:
        run(handle, alpha, da, a, db, b, described, algo, beta, out, made, space, room)

    ours, theirs = (handle.zeros(result.nbytes) for _ in range(2))
    for algo, needed in there.items():
        convolve(algo, made=ours)
        operands = [d.filter if i == direction.filter else d.cudnn for i, d in enumerate(descriptors)]
        memory = (a, b)
        p, q = ((operands[i], memory[i]) for i in direction.order)
        workspace = handle.allocate(needed) if needed else None
        how = (described.cudnn, direction.algorithms[algo], workspace, needed, 0.0)
        getattr(cudnn, f"cudnnConvolution{direction.name}")(handle.cudnn, 1.0, *p, *q, *how, operands[2], theirs)
        np.testing.assert_array_equal(ours.to_host(np.uint8, result.nbytes), theirs.to_host(np.uint8, theirs.nbytes))
    fastest = next(iter(there))
    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, f"miopenConvolution{call}/c03", convolve, fastest, alpha, beta, unchanged=result)
    absent = [algo for algo in direction.algorithms if algo not in there]
    if absent:
        denied(BAD_PARM, f"miopenConvolution{call}/c02", convolve, absent[0], unchanged=result)
    handle.found[next(p for p in handle.found if p.direction == direction.name)][fastest] = size + 1
    denied(BAD_PARM, f"miopenConvolution{call}/c04", convolve, fastest, unchanged=result)


@available("miopenConvolutionBackwardBias")
@shows("miopenConvolutionBackwardBias/c01 c02")
def test_the_gradient_of_the_bias(handle: Any, denied: Any) -> None:
    d, bias, dy, db = tensor(DIMS), tensor((1, 3, 1, 1)), filled(handle, *DIMS), handle.allocate(12)
    call, theirs = miopen.miopenConvolutionBackwardBias, handle.allocate(12)
    call(handle, 1.0, d, dy, 0.0, bias, db)
    cudnn_call = getattr(cudnn, "cudnnConvolutionBackwardBias")  # noqa: B009 (it may not exist yet)
    cudnn_call(handle.cudnn, 1.0, d.cudnn, dy, 0.0, bias.cudnn, theirs)
    np.testing.assert_array_equal(db.to_host(np.uint32, 3), theirs.to_host(np.uint32, 3))
    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "c02", call, handle, alpha, d, dy, beta, bias, db, unchanged=db)
    denied(BAD_PARM, "c01", call, handle, 1.0, None, dy, 0.0, bias, db, unchanged=db)
