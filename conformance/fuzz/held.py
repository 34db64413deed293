"""Check what the descriptors of an operation hold, and what queries say of them, by rules written from the document.

Every setter that can express a specification must accept it exactly where ``LAWS`` says so. All getters must then give
back what was set; a refused setter changes nothing. Queries of sizes and dimensions must give the document's formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from math import prod
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnDataType_t as Type
from dualdnn.api.enumerations import cudnnSeqDataAxis_t as Axis
from dualdnn.api.operations import ConvolutionBackwardData, Operation
from dualdnn.api.operations.rnn import RNNDataSpec
from dualdnn.api.operations.specs import (
    NCHW,
    NCHW_VECT_C,
    NHWC,
    SCALAR_BYTES,
    VECTORS,
    ConvolutionSpec,
    CTCLossSpec,
    FilterSpec,
    LRNSpec,
    OpTensorSpec,
    PoolingSpec,
    ReduceTensorSpec,
    SeqDataSpec,
    SpatialTransformerSpec,
    TensorSpec,
    TransformSpec,
)
from dualdnn.api.status import CudnnError

from ..calls import Caller
from ..calls.descriptors import SETTINGS, Setting
from ..refusals.carried import is_refusal

MAX_RANK = 8  # dimensions, CUDNN_DIM_MAX
MAX_ELEMENTS = 2**31  # elements that a tensor spans, exclusive
FLOATING = (Type.CUDNN_DATA_FLOAT, Type.CUDNN_DATA_DOUBLE, Type.CUDNN_DATA_HALF)
OTHER = {"nbDimsRequested": MAX_RANK, "arrayLengthRequested": MAX_RANK - 2, "seqLengthSizeRequested": 1 << 16}
MAX_LENGTHS = {"cudnnGetRNNDataDescriptor": 1 << 16}  # sequences that are asked for
WRONG = (TypeError, ValueError, IndexError, LookupError, ArithmeticError)  # No call can mean such arguments.
Given = dict[str, Any]


def _tensor(s: TensorSpec) -> bool:
    stored = _stored(s.data_type, s.dims)
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(stored, s.strides, strict=True))
    steps = all(stride > 0 or (not stride and extent == 1) for extent, stride in zip(s.dims, s.strides, strict=True))
    return (
        3 <= len(s.dims) <= MAX_RANK
        and min(s.dims) > 0
        and steps
        and span < MAX_ELEMENTS
        and _whole(s.data_type, s.dims)
    )


def _filter(s: FilterSpec) -> bool:
    vectors = (s.format == NCHW_VECT_C) == (s.data_type in VECTORS)
    return 3 <= len(s.dims) <= MAX_RANK and min(s.dims) > 0 and vectors and _whole(s.data_type, s.dims)


def _stored(data_type: Type, dims: tuple[int, ...]) -> tuple[int, ...]:
    return (dims[0], dims[1] // VECTORS[data_type][1], *dims[2:]) if data_type in VECTORS else dims


def _whole(data_type: Type, dims: tuple[int, ...]) -> bool:
    return data_type not in VECTORS or dims[1] % VECTORS[data_type][1] == 0


def _sequences(s: SeqDataSpec) -> bool:
    order = sorted(s.axes) == list(Axis) and s.axes[-1] == Axis.CUDNN_SEQDATA_VECT_DIM
    sequences = s.dims[Axis.CUDNN_SEQDATA_BATCH_DIM] * s.dims[Axis.CUDNN_SEQDATA_BEAM_DIM]
    fit = all(0 <= length <= s.dims[Axis.CUDNN_SEQDATA_TIME_DIM] for length in s.lengths)
    return (
        len(s.dims) == len(Axis)
        and s.data_type in FLOATING
        and min(s.dims) > 0
        and order
        and len(s.lengths) == sequences
        and fit
    )


def _rnn_data(s: RNNDataSpec) -> bool:
    fit = len(s.lengths) == s.batch and all(0 <= length <= s.max_length for length in s.lengths)
    full = "PACKED" not in s.layout.name or "UNPACKED" in s.layout.name or max(s.lengths, default=0) == s.max_length
    return s.data_type in FLOATING and min(s.max_length, s.batch, s.vector) > 0 and fit and full


def _convolution(s: ConvolutionSpec) -> bool:
    computed = s.compute_type in (*FLOATING, Type.CUDNN_DATA_INT32)
    return min(s.padding) >= 0 and min((*s.stride, *s.dilation, s.group_count)) > 0 and computed


# type of a specification -> whether its setters accept one
LAWS: dict[type, Callable[[Any], bool]] = {
    TensorSpec: _tensor,
    FilterSpec: _filter,
    SeqDataSpec: _sequences,
    RNNDataSpec: _rnn_data,
    ConvolutionSpec: _convolution,
    PoolingSpec: lambda s: min((*s.window, *s.stride)) > 0,
    LRNSpec: lambda s: 1 <= s.n <= 16 and s.beta >= 0.01 and s.k >= 1e-5,
    OpTensorSpec: lambda s: s.compute_type in (*FLOATING, Type.CUDNN_DATA_BFLOAT16),
    ReduceTensorSpec: lambda s: s.compute_type in FLOATING,
    TransformSpec: lambda s: 3 <= len(s.pad_before) <= MAX_RANK and s.format in (NCHW, NHWC) and min(s.fold) >= 0,
    CTCLossSpec: lambda s: s.compute_type in FLOATING[:2] and (s.longest_label or 0) >= 0,
    SpatialTransformerSpec: lambda s: s.data_type in FLOATING and 3 <= len(s.dims) <= MAX_RANK and min(s.dims) > 0,
}


def ways(spec: Any) -> Iterator[list[Setting]]:
    """Yield each list of settings that gives a descriptor this specification."""
    first = [*SETTINGS[type(spec)][1](spec)]
    yield first
    if isinstance(spec, TensorSpec):
        if len(spec.dims) == 4 and spec.vector_length == 1:
            yield [("cudnnSetTensor4dDescriptorEx", spec.data_type, *spec.dims, *spec.strides)]
        for order in (NCHW_VECT_C,) if spec.vector_length > 1 else (NCHW, NHWC):
            if spec == TensorSpec.packed(spec.data_type, spec.dims, order):
                yield [("cudnnSetTensorNdDescriptorEx", order, spec.data_type, len(spec.dims), spec.dims)]
                if len(spec.dims) == 4:
                    yield [("cudnnSetTensor4dDescriptor", order, spec.data_type, *spec.dims)]
    if isinstance(spec, FilterSpec) and len(spec.dims) == 4:
        yield [("cudnnSetFilter4dDescriptor", spec.data_type, spec.format, *spec.dims)]
    if isinstance(spec, PoolingSpec) and len(spec.window) == 2:
        yield [("cudnnSetPoolingNdDescriptor", spec.mode, spec.nan, 2, spec.window, spec.padding, spec.stride)]
    if isinstance(spec, ConvolutionSpec) and spec.rank == 2:
        yield [("cudnnSetConvolutionNdDescriptor", 2, spec.padding, spec.stride, spec.dilation, spec.mode, spec.compute_type), *first[1:]]  # fmt: skip


def specs(value: Any) -> Iterator[Any]:
    """Yield the specifications in an operation that a descriptor can have."""
    if type(value) in SETTINGS:
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from specs(getattr(value, field.name))


def _is_one(spec: Any) -> bool:
    """Return whether calls can say the specification: its arrays have the same number of dimensions."""
    if isinstance(spec, PoolingSpec | ConvolutionSpec):
        window = spec.window if isinstance(spec, PoolingSpec) else spec.dilation
        return len({len(spec.stride), len(spec.padding), len(window)}) == 1
    if isinstance(spec, TransformSpec):
        return len(spec.pad_before) == len(spec.pad_after) == len(spec.fold) + 2
    if isinstance(spec, SeqDataSpec):
        return len(spec.axes) == len(spec.dims)
    return not isinstance(spec, TensorSpec) or len(spec.dims) > 2


def fault(caller: Caller, operation: Operation) -> str:
    """Return what is wrong with the descriptors of an operation or with what queries say of them, or an empty text."""
    for spec in dict.fromkeys(filter(_is_one, specs(operation))):
        try:
            lawful = LAWS.get(type(spec), lambda _: None)(spec)
            if said := _set(caller, spec, lawful):
                return said
        except WRONG:
            continue
    return next(filter(None, (query(caller, operation) for query in (_outputs, _folded))), "")


def _set(caller: Caller, spec: Any, lawful: bool | None) -> str:
    """Set one descriptor in all ways in turn, and return what is wrong, or an empty text."""
    descriptor = getattr(caller.cudnn, f"cudnnCreate{SETTINGS[type(spec)][0]}Descriptor")()
    expected: dict[str, Given] = {}
    for way in ways(spec):
        for setter, *values in way:
            for names in (setter.replace("Set", "Get"), setter.replace("Set", "Get").removesuffix("Ex")):
                if names in functions():
                    given = zip(functions()[setter].arguments[1:], values, strict=True)
                    expected.setdefault(names, {}).update({parameter.name: value for parameter, value in given})
    for way in ways(spec):
        before = _read(caller, descriptor, expected)
        for setter, *values in way:
            try:
                getattr(caller.cudnn, setter)(descriptor, *values)
            except CudnnError as error:
                if not is_refusal(error):
                    return f"{setter}: {error}"
                if lawful:
                    return f"{setter} refuses {spec}: {error}"
                if way == [(setter, *values)] and _read(caller, descriptor, expected) != before:
                    return f"{setter} refuses {spec}, and changes the descriptor"
                break
        else:
            if lawful is False:
                return f"{'; '.join(name for name, *_ in way)} accept {spec}"
            for getter, answers in _read(caller, descriptor, expected).items():
                wanted = expected[getter]
                wrong = [n for n, value in answers.items() if n in wanted and not _alike(value, wanted[n])]
                if wrong:
                    return f"{getter} gives {[(n, answers[n]) for n in wrong]} after {way}"
            if said := _size(caller, descriptor, spec):
                return said
    return ""


def _read(caller: Caller, descriptor: Any, getters: Any) -> dict[str, Given]:
    """Return what each getter that accepts the descriptor says, by the names of its results."""
    answers: dict[str, Given] = {}
    for getter in getters:
        function = functions()[getter]
        asked = {**OTHER, "nbDimsRequested": MAX_LENGTHS.get(getter, MAX_RANK)}
        if getter in MAX_LENGTHS:
            asked["arrayLengthRequested"] = MAX_LENGTHS[getter]
        values = [caller.handle if p.base_type == "cudnnHandle_t" else asked[p.name] for p in function.arguments[1:]]
        try:
            said = getattr(caller.cudnn, getter)(descriptor, *values)
        except CudnnError as error:
            answers[getter] = {"refused": error.clause}
            continue
        names = [p.name for p in function.parameters if p.is_returned]
        answers[getter] = dict(zip(names, (said,) if len(names) == 1 else said, strict=True))
    return answers


def _alike(value: Any, given: Any) -> bool:
    if isinstance(given, tuple | list):
        # A getter may give more entries than the descriptor has; these are 0.
        return tuple(value[: len(given)]) == tuple(given) and not any(value[len(given) :])
    return bool(value == given) or (value != value and given != given) or (given is None and not value)


def _size(caller: Caller, descriptor: Any, spec: Any) -> str:
    """Return a text if the query of the bytes of a tensor or filter does not give the document's number."""
    if not isinstance(spec, TensorSpec | FilterSpec):
        return ""
    name = "cudnnGetTensorSizeInBytes" if isinstance(spec, TensorSpec) else "cudnnGetFilterSizeInBytes"
    number, length = VECTORS.get(spec.data_type, (spec.data_type, 1))
    stored = _stored(spec.data_type, spec.dims)
    steps = spec.strides if isinstance(spec, TensorSpec) else ()
    span = 1 + sum((extent - 1) * step for extent, step in zip(stored, steps, strict=True)) if steps else prod(stored)
    said = getattr(caller.cudnn, name)(descriptor)
    return "" if said == span * length * SCALAR_BYTES[number] else f"{name} gives {said} for {spec}"


def _outputs(caller: Caller, operation: Any) -> str:
    """Return a text if the queries of output dimensions do not give 1 + (input + 2 * padding - window) / stride."""
    spec: Any = getattr(operation, "pooling", None) or getattr(operation, "convolution", None)
    x: Any = next((f for n in ("x", "dx") if isinstance(f := getattr(operation, n, None), TensorSpec)), None)
    w: Any = next((f for n in ("w", "dw") if isinstance(f := getattr(operation, n, None), FilterSpec)), None)
    pools = isinstance(spec, PoolingSpec)
    if x is None or not (pools or (isinstance(spec, ConvolutionSpec) and w)):
        return ""
    try:
        dilation = (1,) * len(spec.padding) if pools else spec.dilation
        window = spec.window if pools else w.dims[2:]
        axes = zip(x.dims[2:], spec.padding, window, dilation, spec.stride, strict=True)
        ends = [(extent + 2 * pad - ((size - 1) * apart + 1), step) for extent, pad, size, apart, step in axes]
        if min(room for room, _ in ends) < 0:
            return ""
        due = (x.dims[0], x.dims[1] if pools else w.dims[0], *(1 + room // step for room, step in ends))
        descriptors = [caller.descriptor(one) for one in ((spec, x) if pools else (spec, x, w))]
        stem = "cudnnGetPooling" if pools else "cudnnGetConvolution"
        said = [getattr(caller.cudnn, f"{stem}NdForwardOutputDim")(*descriptors, len(x.dims))]
        if len(x.dims) == 4:
            said.append(getattr(caller.cudnn, f"{stem}2dForwardOutputDim")(*descriptors))
    except (CudnnError, *WRONG):
        return ""
    return "" if all(tuple(one) == due for one in said) else f"{stem}...OutputDim gives {said}, expected {due}"


def _folded(caller: Caller, operation: Any) -> str:
    """Return a text if a data gradient is not folded as 5.2.30 says: u zeros before and behind the filter."""
    if not isinstance(operation, ConvolutionBackwardData):
        return ""
    cudnn, o = caller.cudnn, operation
    kinds = ("Filter", "Tensor", "Convolution", "Tensor", *("TensorTransform",) * 4)
    made = [getattr(cudnn, f"cudnnCreate{kind}Descriptor")() for kind in kinds]
    try:
        given = [caller.descriptor(one) for one in (o.w, o.dy, o.convolution, o.dx)]
        cudnn.cudnnGetFoldedConvBackwardDataDescriptors(caller.handle, *given, NCHW, *made)
    except (CudnnError, *WRONG):
        return ""
    c = o.convolution
    pads = tuple(-(-pad // step) for pad, step in zip(c.padding, c.stride, strict=True))
    front = tuple(f * step - pad for f, step, pad in zip(pads, c.stride, c.padding, strict=True))
    sizes = [-(-(zeros + taps) // step) * step for zeros, taps, step in zip(front, o.w.dims[2:], c.stride, strict=True)]
    back = tuple(size - zeros - taps for size, zeros, taps in zip(sizes, front, o.w.dims[2:], strict=True))
    _, before, behind, fold, _ = cudnn.cudnnGetTensorTransformDescriptor(made[4], 4)
    said = cudnn.cudnnGetConvolutionNdDescriptor(made[2], 2)
    found = tuple(before[2:]), tuple(behind[2:]), tuple(fold[:2]), tuple(said[1]), tuple(said[2])
    due = front, back, tuple(c.stride), pads, (1, 1)
    if found == due:
        return ""
    return f"cudnnGetFoldedConvBackwardDataDescriptors gives {found}, expected {due} (before, behind, fold, padding, stride)"
