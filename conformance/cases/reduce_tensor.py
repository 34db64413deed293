"""Holds cases of the reduction family."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t, cudnnReduceTensorOp_t
from dualdnn.api.enumerations import cudnnIndicesType_t as Width
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnReduceTensorIndices_t as Indices
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from dualdnn.api.operations.reduce_tensor import INDEX_BYTES, INDEXED, required_indices
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NHWC, UINT8
from dualdnn.api.status import BAD_PARAM, INVALID_VALUE, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge
from dualdnn.reference.view import write

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

ADD, MUL, MIN, MAX, AMAX, AVG, NORM1, NORM2, MUL_NO_ZEROS = OPERATIONS = tuple(cudnnReduceTensorOp_t)
WIDE = Width.CUDNN_32BIT_INDICES
IGNORE, PROPAGATE = Nan.CUDNN_NOT_PROPAGATE_NAN, Nan.CUDNN_PROPAGATE_NAN
# Each is (A, C): DOUBLE alone, HALF and INT8 with themselves and with FLOAT.
TYPES = [(FLOAT, FLOAT), (HALF, HALF), (INT8, INT8), (FLOAT, HALF), (HALF, FLOAT), (FLOAT, INT8), (INT8, FLOAT), (DOUBLE, DOUBLE)]  # fmt: skip
DIMS = (2, 3, 4, 5)
OVER_CHANNELS = (1, 3, 1, 1)


def by_name(value: object) -> str:
    if isinstance(value, tuple):
        return "_".join(by_name(item) for item in value)
    return getattr(value, "name", str(value)).replace("CUDNN_", "").replace("REDUCE_TENSOR_", "").replace("DATA_", "")


def reduction(
    op: Any = ADD, A: TensorSpec | None = None, C: TensorSpec | None = None, *, nan: Nan = PROPAGATE, indices: bool = False,
    width: Width = WIDE, compute: cudnnDataType_t | None = None,
) -> ReduceTensor:  # fmt: skip
    A, C = A or TensorSpec.packed(FLOAT, DIMS), C or TensorSpec.packed(FLOAT, OVER_CHANNELS)
    compute = compute if compute is not None else (DOUBLE if DOUBLE in (A.data_type, C.data_type) else FLOAT)
    spec = ReduceTensorSpec(op, compute, nan, Indices(int(indices)), width)
    return ReduceTensor(spec, required_indices(spec, C), 0, 1.0, 0.0, A, C)


@pytest.fixture
def trial(trial: Callable[..., Trial], caller: Caller) -> Any:
    """Run and judge an operation with the workspace that the subject asks for."""

    def run(operation: Any, **options: Any) -> Any:
        before = {name: bytes_ for name, bytes_ in options.pop("before", {}).items() if name != "workspace"}
        return trial(sized(caller, operation), before=before or None, **options)

    return run


def masked(dims: tuple[int, ...], mask: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if reduce else extent for extent, reduce in zip(dims, mask, strict=True))


@shows("cudnnReduceTensor/c15 c23")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_eight_dimensions_and_no_more(
    trial: Callable[..., Trial], caller: Caller, refuses: Callable[..., bool], layout: Any
) -> None:
    dims = (2, 3, 1, 2, 3, 2, 1, 2)
    for mask in [(1, 0) * 4, (0, 1) * 4, (1, 1, 0, 0) * 2, (1,) * 8, (0, 0, 0, 0, 1, 0, 0, 0)]:
        trial(reduction(MAX, laid_out(FLOAT, dims, layout), laid_out(FLOAT, masked(dims, mask), layout), indices=True))
    # Only the descriptor takes nine dimensions.
    descriptor = caller.cudnn.cudnnCreateTensorDescriptor()
    refuses(NOT_SUPPORTED, "cudnnSetTensorNdDescriptor/c12",
            caller.cudnn.cudnnSetTensorNdDescriptor, descriptor, FLOAT, 9, (1,) * 9, (1,) * 9)  # fmt: skip


# Long reductions run along rows and across them, in NCHW and NHWC. Rows are aligned, unaligned, short or single, and
# some are divided.
LONG = [((3, 16, 28, 28), (1, 16, 1, 1)), ((5, 7, 31, 33), (1, 7, 1, 1)), ((2, 8, 60, 64), (1, 1, 1, 1)), ((3, 130, 7, 7), (1, 130, 1, 1)),
        ((2, 3, 61, 67), (2, 1, 1, 1)), ((9, 3, 37, 7), (1, 3, 37, 7)), ((2, 96, 14, 14), (2, 1, 14, 14)), ((1, 1, 50, 300), (1, 1, 50, 1)),
        ((1, 1, 3, 9001), (1, 1, 3, 1)), ((2, 2, 64, 128), (1, 2, 1, 1))]  # fmt: skip


@shows("cudnnReduceTensor/c01 c17")
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE, INT8], ids=by_name)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
@pytest.mark.parametrize("dims, to", LONG, ids=lambda d: "x".join(map(str, d)))
def test_long_reductions(trial: Callable[..., Trial], dims: Any, to: Any, tensor_format: Any, data_type: Any) -> None:
    """The sums of these inputs are exact: a single wrong element shows, however long the reduction."""
    A, C = (
        TensorSpec.packed(data_type, dims, tensor_format),
        TensorSpec.packed(DOUBLE if data_type == DOUBLE else FLOAT, to),
    )
    trial(reduction(ADD, A, C), inputs="ties")
    trial(reduction(MUL, A, C), before=with_few_factors(reduction(MUL, A, C)))
    trial(reduction(AMAX, A, C))
    trial(reduction(MIN, A, C, indices=True), inputs="ties")
    trial(reduction(MAX, A, C, indices=True), inputs="special")


def with_few_factors(operation: ReduceTensor) -> dict[str, Any]:
    """Return memory where A is 1 but for some thirty factors of each product, which stays in range."""
    memory = prepare(operation, "normal", 0)
    random = np.random.default_rng(0)
    factors = [-1, 2] if operation.A.data_type == INT8 else [-1, 2, 0.5]
    chosen = random.random(operation.A.dims) < 30 / operation.length
    write(operation.A, memory["A"], np.where(chosen, random.choice(factors, operation.A.dims), 1.0))
    return memory


@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=by_name)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
def test_the_same_bits_every_time(caller: Caller, tensor_format: Any, data_type: Any) -> None:
    operation = reduction(
        ADD, TensorSpec.packed(data_type, (5, 7, 31, 33), tensor_format), TensorSpec.packed(FLOAT, (1, 7, 1, 1))
    )
    memory = {name: caller.handle.to_device(bytes_) for name, bytes_ in prepare(operation, "wide", 0).items()}
    results = set()
    for _ in range(3):
        caller(operation, memory)
        results.add(memory["C"].to_host(np.uint8, operation.C.nbytes).tobytes())
    assert len(results) == 1


# --- NaN, infinities, zeros ---


def rows_of(rows: list[list[float]], op: Any, nan: Nan) -> tuple[ReduceTensor, dict[str, Any]]:
    """Return the reduction of each row of floats, and the memory that it starts from."""
    A, C = (TensorSpec.packed(FLOAT, (len(rows), 1, 1, length)) for length in (len(rows[0]), 1))
    operation = reduction(op, A, C, nan=nan, indices=op in INDEXED)
    memory = prepare(operation, "normal", 0)
    memory["A"][:] = np.frombuffer(np.array(rows, np.float32).tobytes(), np.uint8)
    return operation, memory


def reduced_rows(trial: Any, rows: list[list[float]], op: Any, nan: Nan) -> tuple[list[float], list[int]]:
    operation, memory = rows_of(rows, op, nan)
    after = trial(operation, before=memory).after
    indices = after["indices"].view(np.uint32).tolist() if op in INDEXED else []
    return after["C"].view(np.float32).tolist(), indices


NAN, INF = float("nan"), float("inf")
ROWS = [[1, NAN, 3, 2], [-INF, NAN, -5, -7], [NAN, 0, 0, 0], [3, 2, 1, NAN], [INF, 1, 2, 3], [NAN, INF, NAN, INF]]


@shows("cudnnSetReduceTensorDescriptor/c04")
@pytest.mark.parametrize(
    "op, nan, values, indices",
    [
        (MIN, IGNORE, [1, -INF, 0, 1, 1, INF], [0, 0, 1, 2, 1, 1]),
        (MAX, IGNORE, [3, -5, 0, 3, INF, INF], [2, 2, 1, 0, 0, 1]),
        (AMAX, IGNORE, [3, INF, 0, 3, INF, INF], []),
        (MIN, PROPAGATE, [NAN, NAN, NAN, NAN, 1, NAN], [1, 1, 0, 3, 1, 0]),
        (MAX, PROPAGATE, [NAN, NAN, NAN, NAN, INF, NAN], [1, 1, 0, 3, 0, 0]),
        (AMAX, PROPAGATE, [NAN, NAN, NAN, NAN, INF, NAN], []),
    ],
    ids=[f"{by_name(op)}-{by_name(nan)}" for nan in (IGNORE, PROPAGATE) for op in (MIN, MAX, AMAX)],
)
def test_extrema_among_nan(trial: Callable[..., Trial], op: Any, nan: Any, values: Any, indices: Any) -> None:
    found, positions = reduced_rows(trial, ROWS, op, nan)
    np.testing.assert_array_equal(found, values)
    assert positions == indices


@pytest.mark.parametrize("op, nothing", [(MIN, INF), (MAX, -INF), (AMAX, 0.0)], ids=by_name)
def test_extremum_of_nothing_but_nan(trial: Callable[..., Trial], op: Any, nothing: Any) -> None:
    """Without propagation, NaN is ignored. A row of only NaN gives the extremum of an empty set, at position 0."""
    values, indices = reduced_rows(trial, [[NAN] * 4, [NAN, 7, 7, NAN]], op, IGNORE)
    assert values == [nothing, 7]
    assert indices == ([0, 1] if op in INDEXED else [])


@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("op, infinity", [(MIN, INF), (MAX, -INF)], ids=by_name)
def test_extremum_of_equal_infinities(trial: Callable[..., Trial], op: Any, infinity: Any, nan: Any) -> None:
    assert reduced_rows(trial, [[infinity] * 4], op, nan) == ([infinity], [0])


FACTORS = [[0, -0.0, 0], [0, 2, 3], [1, 2, 3], [3, 2, 1], [-3, -2, 1], [NAN, 0, 1], [0, INF, 1], [2, -INF, 3], [NAN, 2, INF]]  # fmt: skip


@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize(
    "op, values",
    [(MUL, [0, 0, 6, 6, 6, NAN, NAN, -INF, NAN]), (MUL_NO_ZEROS, [1, 6, 6, 6, 6, NAN, INF, -INF, NAN])],
    ids=["MUL", "MUL_NO_ZEROS"],
)
def test_products_with_zeros_infinities_and_nan(trial: Callable[..., Trial], op: Any, values: Any, nan: Any) -> None:
    """A product without factors is 1; zeros of both signs are left out; NaN is a factor whatever the descriptor says."""
    np.testing.assert_array_equal(reduced_rows(trial, FACTORS, op, nan)[0], values)


@pytest.mark.parametrize("op", [ADD, AVG, NORM1, NORM2], ids=by_name)
def test_squares_are_subnormal(trial: Callable[..., Trial], op: Any) -> None:
    """Numbers are right although float rounds their squares to few bits, or to zero."""
    reduced_rows(trial, [[4e-23, -4e-23, 3e-23], [1e-21, 2e-21, 3e-21], [1e-20, 0, 1e-30]], op, PROPAGATE)


# --- indices ---


@shows("cudnnReduceTensor/c06", "cudnnReduceTensorIndices_t/c01")
def test_no_indices_unless_asked_for(trial: Callable[..., Trial], caller: Caller) -> None:
    for op in INDEXED:
        operation = reduction(op)
        memory = {name: caller.handle.to_device(bytes_) for name, bytes_ in prepare(operation, "normal", 0).items()}
        indices = caller.handle.to_device(np.full(64, 0xA5, np.uint8))
        caller(operation, {**memory, "indices": indices})
        assert (indices.to_host(np.uint8, 64) == 0xA5).all()


@shows("cudnnReduceTensor/c08", "cudnnIndicesType_t/c01", "cudnnSetReduceTensorDescriptor/c06")
def test_indices_of_32_bits(trial: Callable[..., Trial]) -> None:
    found = trial(reduction(MAX, indices=True), before=counting(reduction(MAX, indices=True))).after["indices"]
    assert found.view(np.uint32).tolist() == [39, 39, 39]


@shows("cudnnIndicesType_t/c01", "cudnnSetReduceTensorDescriptor/c06")
@pytest.mark.parametrize("op", INDEXED, ids=by_name)
@pytest.mark.parametrize("width", list(Width), ids=by_name)
def test_indices_of_every_width(trial: Callable[..., Trial], width: Any, op: Any) -> None:
    for dims, to in ((DIMS, OVER_CHANNELS), ((1, 1, 16, 16), (1, 1, 1, 1)), ((2, 8, 60, 64), (2, 8, 60, 1))):
        operation = reduction(
            op, TensorSpec.packed(FLOAT, dims), TensorSpec.packed(FLOAT, to), indices=True, width=width
        )
        trial(operation)
        trial(operation, before=counting(operation))


@shows("cudnnReduceTensor/c08")
@pytest.mark.parametrize(
    "width, length", [(Width.CUDNN_8BIT_INDICES, 256), (Width.CUDNN_16BIT_INDICES, 65536)], ids=by_name
)
def test_indices_beyond_their_width(
    trial: Callable[..., Trial], refused: Callable[..., None], width: Any, length: int
) -> None:
    C = TensorSpec.packed(FLOAT, (1, 1, 1, 1))
    operation = reduction(MAX, TensorSpec.packed(FLOAT, (1, 1, 1, length)), C, indices=True, width=width)
    assert trial(operation, before=counting(operation)).after["indices"].tolist() == [255] * INDEX_BYTES[width]
    operation = reduction(MAX, TensorSpec.packed(FLOAT, (1, 1, 1, length + 1)), C, indices=True, width=width)
    refused(operation, NOT_SUPPORTED, "cudnnReduceTensor/c08")
    trial(reduction(MAX, operation.A, C, width=width))  # Without indices their width does not matter.


def counting(operation: ReduceTensor) -> dict[str, Any]:
    """Return memory where the elements of A (packed floats) increase."""
    memory = prepare(operation, "normal", 0)
    memory["A"][:] = np.frombuffer(np.arange(operation.A.count, dtype=np.float32).tobytes(), np.uint8)
    return memory


# --- refusals ---


ALL_TYPES = [FLOAT, DOUBLE, HALF, INT8, BFLOAT16, INT32, UINT8]


def refusal_of(types: tuple[Any, ...]) -> Any:
    """Return the status that the document gives the types of A and C; None where they work."""
    if not set(types) <= {FLOAT, DOUBLE, HALF, INT8}:
        return NOT_SUPPORTED, "cudnnReduceTensor/c25"
    if DOUBLE in types and set(types) != {DOUBLE}:
        return BAD_PARAM, "cudnnReduceTensor/c29"
    return (BAD_PARAM, "cudnnReduceTensor/c13") if set(types) == {HALF, INT8} else None


@shows("cudnnReduceTensor/c11 c13 c25 c27 c29")
@pytest.mark.parametrize("types", [types for types in product(ALL_TYPES, repeat=2) if refusal_of(types)], ids=by_name)
def test_data_types_that_do_not_work(refused: Any, types: Any) -> None:
    A, C = TensorSpec.packed(types[0], DIMS), TensorSpec.packed(types[1], OVER_CHANNELS)
    refused(reduction(A=A, C=C), *refusal_of(types))


@shows("cudnnReduceTensor/c12 c14 c24")
@pytest.mark.parametrize("types", TYPES, ids=by_name)
@pytest.mark.parametrize("compute", [FLOAT, DOUBLE, HALF], ids=by_name)
def test_type_of_the_computation(
    trial: Callable[..., Trial], refused: Callable[..., None], types: Any, compute: Any
) -> None:
    A, C = TensorSpec.packed(types[0], DIMS), TensorSpec.packed(types[1], OVER_CHANNELS)
    operation = reduction(A=A, C=C, compute=compute)
    if compute == (DOUBLE if DOUBLE in types else FLOAT):
        trial(operation)
    else:
        refused(operation, NOT_SUPPORTED, "cudnnReduceTensor/c24")


@shows("cudnnReduceTensor/c17 c31", "cudnnGetReductionWorkspaceSize/c01 c03")
@pytest.mark.parametrize("dims, to", LONG[:3], ids=lambda d: "x".join(map(str, d)))
@pytest.mark.parametrize("all_of_it", [False, True], ids=["one_byte_short", "none"])
def test_workspace_too_small(
    cudnn: Any, caller: Caller, refuses: Callable[..., bool], dims: Any, to: Any, all_of_it: bool
) -> None:
    arguments = arguments_of(caller, reduction(A=TensorSpec.packed(FLOAT, dims), C=TensorSpec.packed(FLOAT, to)))
    cudnn.cudnnReduceTensor(*arguments.values())  # Memory of exactly the reported size suffices.
    arguments["workspaceSizeInBytes"] = 0 if all_of_it else arguments["workspaceSizeInBytes"] - 1
    unchanged = (arguments["A"], arguments["C"], arguments["workspace"])
    refuses(INVALID_VALUE, "cudnnReduceTensor/c31", cudnn.cudnnReduceTensor, *arguments.values(), unchanged=unchanged)


@shows("cudnnReduceTensor/c17 c31")
@pytest.mark.parametrize("size", [2**31 + 4, 2**32 + 4], ids=str)
def test_size_exceeds_31_bits(subject: Subject, cudnn: Any, caller: Caller, size: Any) -> None:
    """A size beyond 31 bits is not truncated; only the size is that large."""
    if subject.is_python or subject.knows_sizes:
        pytest.skip("numbers of Python have any size, and memory of that size would be needed")
    dims, to = LONG[0]
    arguments = arguments_of(caller, reduction(A=TensorSpec.packed(FLOAT, dims), C=TensorSpec.packed(FLOAT, to)))
    assert arguments["workspaceSizeInBytes"] > 4
    arguments["workspaceSizeInBytes"] = size
    cudnn.cudnnReduceTensor(*arguments.values())


def arguments_of(caller: Any, operation: ReduceTensor) -> dict[str, Any]:
    """Return the arguments of the documented call, by name; the workspace is as large as the subject asks for."""
    memory = {name: caller.handle.to_device(bytes_) for name, bytes_ in prepare(operation, "normal", 0).items()}
    A, C = caller.tensor(operation.A), caller.tensor(operation.C)
    descriptor = caller.descriptor(operation.reduction)
    size = caller.cudnn.cudnnGetReductionWorkspaceSize(caller.handle, descriptor, A, C)
    return {
        "handle": caller.handle, "reduceTensorDesc": descriptor, "indices": memory["indices"],
        "indicesSizeInBytes": operation.indices_bytes, "workspace": caller.handle.to_device(np.full(size, 7, np.uint8)),
        "workspaceSizeInBytes": size, "alpha": 1.0, "aDesc": A, "A": memory["A"], "beta": 0.0, "cDesc": C, "C": memory["C"],
    }  # fmt: skip


@shows("cudnnReduceTensor/c16")
@pytest.mark.parametrize("nbytes", [0, 64])
def test_null_indices_where_none_are_wanted(cudnn: Any, caller: Caller, nbytes: int) -> None:
    operation = reduction(NORM2)
    arguments = {**arguments_of(caller, operation), "indices": None, "indicesSizeInBytes": nbytes}
    cudnn.cudnnReduceTensor(*arguments.values())
    after = {"C": arguments["C"].to_host(np.uint8, operation.C.nbytes)}
    assert judge(operation, prepare(operation, "normal", 0), after).agrees


# --- sizes ---


def described(arguments: dict[str, Any]) -> list[Any]:
    """Return the arguments of a query for a size."""
    return [arguments[name] for name in ("handle", "reduceTensorDesc", "aDesc", "cDesc")]


@shows("cudnnGetReductionIndicesSize/c01 c03", "cudnnReduceTensor/c16")
@pytest.mark.parametrize("op", INDEXED, ids=by_name)
@pytest.mark.parametrize("wanted", [False, True], ids=["no_indices", "indices"])
def test_size_of_the_indices(cudnn: Any, caller: Caller, wanted: bool, op: Any) -> None:
    """The size is one unsigned int per element of C, and 0 without indices. Less memory is refused."""
    operation = reduction(op, C=TensorSpec.packed(FLOAT, (2, 3, 1, 5)), indices=wanted)
    arguments = arguments_of(caller, operation)
    size = cudnn.cudnnGetReductionIndicesSize(*described(arguments))
    assert size == (30 * 4 if wanted else 0)


@shows("cudnnIndicesType_t/c01")
@pytest.mark.parametrize("width, each", INDEX_BYTES.items(), ids=by_name)
def test_size_of_indices_of_every_width(cudnn: Any, caller: Caller, width: Any, each: Any) -> None:
    operation = reduction(MAX, indices=True, width=width)
    arguments = arguments_of(caller, operation)
    size = cudnn.cudnnGetReductionIndicesSize(*described(arguments))
    assert size == 3 * each


# --- the descriptor ---


descriptor = fresh_descriptor("ReduceTensor")


SETTINGS = (ADD, FLOAT, PROPAGATE, Indices.CUDNN_REDUCE_TENSOR_NO_INDICES, WIDE)
CHOICES = (OPERATIONS, (FLOAT, DOUBLE, HALF), tuple(Nan), tuple(Indices), tuple(Width))


@shows("cudnnCreateReduceTensorDescriptor/c01 c02", "cudnnReduceTensorDescriptor_t/c01", "cudnnSetReduceTensorDescriptor/c01-c07",
       "cudnnGetReduceTensorDescriptor/c01-c05 c07", "cudnnReduceTensorOp_t/c01", "cudnnReduceTensorIndices_t/c01",
       "cudnnIndicesType_t/c01")  # fmt: skip
def test_settings_are_read_back(cudnn: Any, descriptor: Any) -> None:
    for position, choices in enumerate(CHOICES):
        for choice in choices:
            settings = (*SETTINGS[:position], choice, *SETTINGS[position + 1 :])
            cudnn.cudnnSetReduceTensorDescriptor(descriptor, *settings)
            assert tuple(cudnn.cudnnGetReduceTensorDescriptor(descriptor)) == settings


@shows("cudnnDestroyReduceTensorDescriptor/c01-c03")
def test_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    made = cudnn.cudnnCreateReduceTensorDescriptor()
    assert cudnn.cudnnDestroyReduceTensorDescriptor(made) is None
    assert cudnn.cudnnDestroyReduceTensorDescriptor(None) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyReduceTensorDescriptor, made)
        refuses(BAD_PARAM, "cudnnSetReduceTensorDescriptor/c08", cudnn.cudnnSetReduceTensorDescriptor, made, *SETTINGS)
