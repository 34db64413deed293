"""Lists where recorded calls of NVIDIA's library and the document disagree; docs/errata.md decides each under its id.

A rule covers a finding only with the statuses, the clause that our refusal cites and the kind of call that it names.
Every other disagreement fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from dualdnn.reference import judge
from dualdnn.reference.view import NUMPY_TYPES

from ..recorded.judging import Finding, equal_results
from ..recorded.model import Record
from ..recorded.replay import recorded_after
from .table import Difference, Disagreement, declare

Arguments = Mapping[str, Any]
SCALARS = {kind.name: dtype for kind, dtype in NUMPY_TYPES.items()}


def descriptors(record: Record) -> Iterator[tuple[str, Arguments]]:
    """Return (parameter, arguments of the last setter) of every descriptor of the call that was filled."""
    for name, value in (record.arguments or {}).items():
        if isinstance(value, dict) and value.get("calls"):
            yield name, value["calls"][-1][1]


def fields(record: Record, field: str) -> list[Any]:
    """Return the values of a field of the call and of its descriptors."""
    own = [record.arguments[field]] if record.arguments and field in record.arguments else []
    return own + [given[field] for _, given in descriptors(record) if field in given]


def has(field: str, *values: Any) -> Callable[[Record], bool]:
    """Return a test: the call, or a descriptor of it, has one of these values in ``field``."""
    return lambda record: any(value in values for value in fields(record, field))


def rank(count: int) -> Callable[[Record], bool]:
    return has("nbDims", count)


def negative_strides(record: Record) -> bool:
    strides = [stride for listed in fields(record, "strideA") for stride in listed]
    strides += [value for name in ("nStride", "cStride", "hStride", "wStride") for value in fields(record, name)]
    return any(stride < 0 for stride in strides)


def few_dimensions(record: Record) -> bool:
    return any(count < 3 for count in fields(record, "nbDims"))


def holds(parameter: str, test: Callable[[Any], Any]) -> Callable[[Record], bool]:
    """Return a test: some scalar of the operand fulfils the given test."""

    def fulfilled(record: Record) -> bool:
        arguments = record.arguments or {}
        described = dict(descriptors(record))
        spec = next((given for name, given in described.items() if name.lower() == f"{parameter}desc".lower()), None)
        value = arguments.get(parameter)
        if spec is None or spec["dataType"] not in SCALARS or not isinstance(value, dict) or "memory" not in value:
            return False
        before = record.memory[value["memory"]][0]
        if before is None:
            return False
        scalars = before.view(SCALARS[spec["dataType"]]).astype(np.float64)
        return bool(np.any(test(scalars)))

    return fulfilled


def both(*tests: Callable[[Record], bool]) -> Callable[[Record], bool]:
    return lambda record: all(test(record) for test in tests)


def either(*tests: Callable[[Record], bool]) -> Callable[[Record], bool]:
    return lambda record: any(test(record) for test in tests)


def of_type(*names: str) -> Callable[[Record], bool]:
    return has("dataType", *(f"CUDNN_DATA_{name}" for name in names))


def empty_windows(record: Record) -> bool:
    """Return whether some output of an average covers no input.

    The padding is as large as the window, or the output larger than advised.
    """
    pooling = dict(descriptors(record))["poolingDesc"]
    x, y = (dict(descriptors(record))[name]["dimA"][2:] for name in ("xDesc", "yDesc"))
    parts = zip(x, y, pooling["windowDimA"], pooling["paddingA"], pooling["strideA"], strict=True)
    return any(
        min(i * step - pad + window for i in range(count)) <= 0 or (count - 1) * step - pad >= extent
        for extent, count, window, pad, step in parts
    )


ANY_MAXIMUM = ("CUDNN_POOLING_MAX", "CUDNN_POOLING_MAX_DETERMINISTIC")
INDEX_BYTES = {"CUDNN_64BIT_INDICES": 8, "CUDNN_16BIT_INDICES": 2, "CUDNN_8BIT_INDICES": 1}
AVERAGES = ("CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING", "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING")


def other_images(record: Record) -> bool:
    """Return whether x and y differ in their numbers of images or channels."""
    described = dict(descriptors(record))
    first, second = (described.get(name, {}).get("dimA") for name in ("xDesc", "yDesc"))
    return first is not None and second is not None and first[:2] != second[:2]


def shares_memory(record: Record) -> bool:
    """Return whether two operands of the call share memory."""
    places = [
        value["memory"] for value in (record.arguments or {}).values() if isinstance(value, dict) and "memory" in value
    ]
    return len(set(places)) < len(places)


def as_if_zero(operand: str) -> Callable[[Finding], bool]:
    """Return whether the recorded outputs are right for an operand that holds zeros."""

    def expected(finding: Finding) -> bool:
        if finding.operation is None:
            return False
        before = {**finding.before, operand: np.zeros_like(finding.before[operand])}
        kept = {**before, **{name: recorded_after(finding.record)[name] for name in finding.operation.outputs}}
        return judge(finding.operation, before, kept).agrees

    return expected


def index_bytes(finding: Finding) -> int:
    return next(INDEX_BYTES[name] for name in fields(finding.record, "reduceTensorIndicesType"))


def four_bytes_each(finding: Finding) -> bool:
    """Return whether the recorded size of indices fits 32-bit integers exactly."""
    return bool(finding.record.result * index_bytes(finding) == finding.result * 4)


def indices_of_32_bits(finding: Finding) -> bool:
    """Return whether the recorded outputs are right once 32-bit indices are read in place of narrower or wider ones."""
    if finding.operation is None:
        return False
    kept = dict(recorded_after(finding.record))
    narrow = (
        kept["indices"][: kept["indices"].size // 4 * 4]
        .view(np.int32)
        .astype(f"i{index_bytes(finding)}")
        .view(np.uint8)
    )
    kept["indices"] = np.resize(narrow, max(kept["indices"].size, narrow.size))
    return judge(finding.operation, finding.before, {**finding.before, **kept}).agrees


def an_eighth_of_the_channels(finding: Finding) -> bool:
    """Return whether an INT8x32 filter reads back with 4 channels for each vector of 32."""
    return equal_results(finding.record.result, {**finding.result, "c": finding.result["c"] // 8})


def null_keeps(finding: Finding) -> bool:
    """Return whether the getter fills a NULL array with the values of the calls before it, and with zeros
    without such calls."""
    calls = finding.record.arguments["transformDesc"]["calls"] if finding.record.arguments else []
    expected = dict(finding.result)
    for name, ours in finding.result.items():
        given = [call[name] for _, call in calls if isinstance(call.get(name), list)]
        if isinstance(ours, list) and given:
            expected[name] = (given[-1] + [0] * len(ours))[: len(ours)]
    return equal_results(finding.record.result, expected)


declare([
    Difference(
        "V-activation-mode", "cudnnSetActivationDescriptor", ("cudnnSetActivationDescriptor/c07",),
        "Modes are those of cudnnActivationMode_t, any other is BAD_PARAM.",
        "Version 9 has one more mode, 6 (Swish), and computes it.", "BAD_PARAM: 8.0.3 has no mode 6.",
        recorded=(Disagreement(ours="BAD_PARAM", clauses=("cudnnSetActivationDescriptor/c07",), theirs="SUCCESS"),),
    ),
    Difference(
        "V-vector-types", "cudnnSetTensor4dDescriptor", ("cudnnDataType_t/c02", "cudnnDataType_t/c03", "cudnnDataType_t/c05"),
        "INT8x4, UINT8x4 and INT8x32 are supported with CUDNN_TENSOR_NCHW_VECT_C only.",
        "Setters take vector types with NCHW, NHWC and explicit strides, and CUDNN_TENSOR_NCHW_VECT_C with any type.", "BAD_PARAM (D029).",
        cases=("tensor_descriptors/test_vect_c_needs_a_vector_type*", "tensor_descriptors/test_vector_types_need_vect_c*", "filter_descriptors/test_vector_type_needs_the_vector_format*"),
        recorded=(
            Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnDataType_t/c0[235]", "cudnnTensorFormat_t/c06")),
            # A call after the setter refuses a value that the setter took.
            Disagreement(functions=("cudnnDeriveNorm*",), ours="BAD_PARAM", theirs="NOT_SUPPORTED", clauses=("cudnnDataType_t/c05",)),
        ),
        says=("succeeded, not BAD_PARAM by cudnnDataType_t/*",
              "succeeded, not BAD_PARAM by cudnnTensorFormat_t/c06"),
    ),
    Difference(
        "V-negative-strides", "cudnnSetTensor4dDescriptorEx", ("cudnnSetTensor4dDescriptorEx/c10",),
        "A negative stride is BAD_PARAM.", "Negative strides are accepted.", "BAD_PARAM: the status list (D126, D130).",
        cases=("tensor_descriptors/test_strides_are_not_negative*",),
        recorded=(
            Disagreement(ours="BAD_PARAM", clauses=("cudnnSetTensor4dDescriptorEx/c10",), when=negative_strides, theirs="SUCCESS"),
            Disagreement(ours="BAD_PARAM", clauses=("cudnnStatus_t/c05",), when=negative_strides, theirs="SUCCESS"),
        ),
        says=("succeeded, not BAD_PARAM by cudnnSetTensor4dDescriptorEx/c10",),
    ),
    Difference(
        "V-lowest-rank", "cudnnSetTensorNdDescriptorEx", ("cudnnSetTensorNdDescriptorEx/c07",),
        "nbDims outside the supported range is NOT_SUPPORTED.",
        "cudnnSetTensorNdDescriptorEx accepts 2 dimensions and answers BAD_PARAM below.", "NOT_SUPPORTED below 3 (D128).",
        cases=("tensor_descriptors/test_nd_rank_is_limited*",),
        recorded=(
            Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnSetTensorNdDescriptor*/c*",), when=few_dimensions, theirs="BAD_PARAM"),
            Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnSetTensorNdDescriptor*/c*",), when=few_dimensions, theirs="SUCCESS"),
        ),
        says=("cudnnSetTensorNdDescriptor BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnSetTensorNdDescriptor/c12"),
    ),
    Difference(
        "V-destroy-null", "cudnnDestroyActivationDescriptor", ("cudnnStatus_t/c05",),
        "An incorrect parameter is BAD_PARAM; only some Destroy sections say that NULL does nothing.",
        "Every Destroy of a descriptor answers SUCCESS for NULL.", "BAD_PARAM where the section does not allow it (D030).",
        cases=("fused_ops_packs/test_destroy_of_null_packs*",),
        recorded=(Disagreement(functions=("cudnnDestroy*",), ours="BAD_PARAM", clauses=("cudnnStatus_t/c05",), theirs="SUCCESS"),),
        says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
    ),
    Difference(
        "V-activation-backward-types", "cudnnActivationBackward", ("cudnnActivationBackward/c14",),
        "Differing data types are NOT_SUPPORTED.", "The type of y may differ for the ReLU.", "NOT_SUPPORTED: the status list (D145).",
        cases=("activation/test_backward_operands_must_agree*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnActivationBackward/c14",), theirs="SUCCESS"),),
        says=("succeeded, not NOT_SUPPORTED by cudnnActivationBackward/c13",),
    ),
    Difference(
        "V-activation-backward-layouts", "cudnnActivationBackward", ("cudnnActivationBackward/c15", "cudnnActivationBackward/c16"),
        "y and dy have equal strides, x and dx have equal strides; nothing relates the two pairs.",
        "Refuses x and dx of another layout than y and dy.", "Computed: the status list names no such condition.",
        recorded=(Disagreement(functions=("cudnnActivationBackward",), ours="SUCCESS", theirs="NOT_SUPPORTED"),),
    ),
    Difference(
        "V-arithmetic-rank", "cudnnAddTensor", ("cudnnAddTensor/c04", "cudnnOpTensor/c25"),
        "Tensors of up to 5 dimensions are supported.", "3 dimensions are BAD_PARAM.", "Computed: up to 5 includes 3.",
        cases=("tensor_arithmetic/test_*_takes_three_dimensions*",),
        recorded=(Disagreement(functions=("cudnnAddTensor", "cudnnOpTensor"), ours="SUCCESS", theirs="BAD_PARAM", when=rank(3)),),
        says=("cudnnAddTensor BAD_PARAM", "cudnnOpTensor BAD_PARAM"),
    ),
    Difference(
        "V-add-vectors", "cudnnAddTensor", ("cudnnAddTensor/c04",), "Every tensor format is supported.",
        "INT8x4 in CUDNN_TENSOR_NCHW_VECT_C is NOT_SUPPORTED.", "Computed: the sentence names every format.",
        cases=("tensor_arithmetic/test_add_takes_vectorised_channels*",),
        recorded=(Disagreement(functions=("cudnnAddTensor",), ours="SUCCESS", theirs="NOT_SUPPORTED", when=of_type("INT8x4")),),
        says=("cudnnAddTensor NOT_SUPPORTED",),
    ),
    Difference(
        "V-op-table", "cudnnOpTensor", ("cudnnOpTensor/c28", "cudnnOpTensor/c31"),
        "Types outside Table 7 are BAD_PARAM.", "Some are NOT_SUPPORTED, and INT8 or BFLOAT16 with a DOUBLE result is computed.",
        "BAD_PARAM: table and status list.",
        cases=("tensor_arithmetic/test_op_types_outside_table_7*", "tensor_arithmetic/test_op_vectorised_types*",),
        recorded=(
            Disagreement(ours="BAD_PARAM", theirs="NOT_SUPPORTED", clauses=("cudnnOpTensor/c28", "cudnnOpTensor/c31")),
            Disagreement(ours="BAD_PARAM", clauses=("cudnnOpTensor/c31",), theirs="SUCCESS"),
        ),
        says=("cudnnOpTensor NOT_SUPPORTED, not BAD_PARAM", "succeeded, not BAD_PARAM by cudnnOpTensor/c31"),
    ),
    Difference(
        "V-zero-factor", "cudnnScaleTensor", ("cudnnScaleTensor/c01", "cudnnAddTensor/c01", "cudnnOpTensor/c01"), "y = alpha * y: 0 times NaN is NaN.",
        "A factor of 0 gives 0 whatever the tensor holds.", "The formula; only beta = 0 is said not to read.",
        recorded=(
            Disagreement("outputs", ("cudnnScaleTensor",), when=has("alpha", 0.0), expects=as_if_zero("y")),
            Disagreement("outputs", ("cudnnAddTensor",), when=has("alpha", 0.0), expects=as_if_zero("A")),
            Disagreement("outputs", ("cudnnOpTensor",), when=has("alpha1", 0.0), expects=as_if_zero("A")),
            Disagreement("outputs", ("cudnnOpTensor",), when=has("alpha2", 0.0), expects=as_if_zero("B")),
        ),
    ),
    Difference(
        "V-set-value-type", "cudnnSetTensor", ("cudnnSetTensor/c03",), "The value has the data type of y.",
        "Reads a float for HALF, BFLOAT16 and INT8 and rounds it into y.", "The data type of y, as the section says (D124).",
        cases=("tensor_arithmetic/test_set*HALF*", "tensor_arithmetic/test_set*BFLOAT16*", "tensor_arithmetic/test_set*INT8*", "tensor_arithmetic/test_operands_need_only*",),
        recorded=(Disagreement("outputs", ("cudnnSetTensor",), when=of_type("HALF", "BFLOAT16", "INT8")),),
        says=("assertion *", "wrong y: *"),
    ),
    Difference(
        "V-transform-types", "cudnnTransformTensor", ("cudnnTransformTensor/c11",),
        "Different data types of x and y are BAD_PARAM.", "Converts some pairs of types and answers NOT_SUPPORTED for others.",
        "BAD_PARAM: the status list.",
        cases=("transform/test_data_types_must_agree*", "transform/test_other_conversions*",),
        recorded=(
            Disagreement(ours="BAD_PARAM", clauses=("cudnnTransformTensor/c11",), theirs="SUCCESS"),
            Disagreement(ours="BAD_PARAM", clauses=("cudnnTransformTensor/c11",), theirs="NOT_SUPPORTED"),
        ),
        says=("cudnnSetFilterNdDescriptor BAD_PARAM, not NOT_SUPPORTED",
              "cudnnTransformTensor NOT_SUPPORTED, not BAD_PARAM",
              "succeeded, not BAD_PARAM by cudnnTransformTensor/c11"),
    ),
    Difference(
        "V-transform-integers", "cudnnTransformTensor", ("cudnnTransformTensor/c01",), "Names no data types.",
        "INT32 and UINT8 are NOT_SUPPORTED.", "Computed: no list excludes them.",
        cases=("transform/test_data_is_moved_unchanged*",),
        recorded=(
            Disagreement(functions=("cudnnTransformTensor",), ours="SUCCESS", theirs="NOT_SUPPORTED", when=of_type("INT32", "UINT8")),
        ),
        says=("cudnnTransformTensor NOT_SUPPORTED",),
    ),
    Difference(
        "V-transform-vectors", "cudnnTransformTensor", ("cudnnTransformTensor/c01",),
        "Serves to bring a tensor into another format.", "Turns INT8 into INT8x4 and back; INT8x32 and UINT8x4 are BAD_PARAM.",
        "Computed for all vector types with the same scalar.",
        cases=("transform/test_between_vectors*", "transform/test_vectors_are_not_transformed*", "reduce_tensor/test_vectorised_channels*",),
        recorded=(
            Disagreement(
                functions=("cudnnTransformTensor",), ours="SUCCESS", theirs="BAD_PARAM", when=of_type("INT8x32", "UINT8x4", "INT8x4"),
            ),
        ),
        says=("cudnnReduceTensor NOT_SUPPORTED", "cudnnTransformTensor BAD_PARAM",
              "succeeded, not NOT_SUPPORTED by cudnnTransformTensorEx/c15"),
    ),
    Difference(
        "V-transform-dims", "cudnnTransformTensorEx", ("cudnnTransformTensorEx/c04", "cudnnTransformTensorEx/c13"),
        "Source and destination have the dimensions that the transform implies; a wrongly initialised parameter is BAD_PARAM.",
        "A destination that is not folded, and a transform set for another number of dimensions, are computed.", "BAD_PARAM.",
        cases=("transform/test_dimensions_must_fit*", "transform/test_rank_of_the_transform*", "transform/test_other_ranks_are_not_transformed*",),
        recorded=(
            Disagreement(ours="BAD_PARAM", clauses=("cudnnTransformTensorEx/c04", "cudnnTransformFilter/c04"), theirs="SUCCESS"),
            Disagreement(ours="BAD_PARAM", clauses=("cudnnTransformTensorEx/c13", "cudnnTransformFilter/c13"), theirs="SUCCESS"),
        ),
        says=("succeeded, not BAD_PARAM by cudnnTransformFilter/*",
              "succeeded, not BAD_PARAM by cudnnTransformTensorEx/*",
              "succeeded, not NOT_SUPPORTED by cudnnTransformFilter/c15",
              "succeeded, not NOT_SUPPORTED by cudnnTransformTensorEx/c15"),
    ),
    Difference(
        "V-transform-factors", "cudnnTransformTensorEx", ("cudnnTransformTensorEx/c16", "cudnnTransformFilter/c16"),
        "Folding and padding take alpha = 1 and beta = 0 only, else NOT_SUPPORTED.", "Blends when folding, scales when padding.",
        "NOT_SUPPORTED: the status list.",
        cases=("transform/test_folding_and_padding_are_not_scaled*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnTransform*/c16",), theirs="SUCCESS"),),
        says=("succeeded, not NOT_SUPPORTED by cudnnTransformFilter/c16",
              "succeeded, not NOT_SUPPORTED by cudnnTransformTensorEx/c16"),
    ),
    Difference(
        "V-transform-destination", "cudnnInitTransformDest", ("cudnnInitTransformDest/c08", "cudnnInitTransformDest/c09"),
        "A wrong nbDims is BAD_PARAM; what is not 4-D is NOT_SUPPORTED.",
        "Other numbers of dimensions are computed, and nbDims of the transform need not be that of the tensor.",
        "Refused as the status list says.",
        cases=("transform/test_destination_rank_must_agree*", "transform/test_destination_of_other_ranks*", "transform/test_destination_of_vectors*"),
        recorded=(
            Disagreement(ours="BAD_PARAM", clauses=("cudnnInitTransformDest/c08",), theirs="SUCCESS"),
            Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnInitTransformDest/c09",), theirs="SUCCESS"),
        ),
        says=("succeeded, not BAD_PARAM by cudnnDataType_t/c02",
              "succeeded, not BAD_PARAM by cudnnInitTransformDest/c08",
              "succeeded, not NOT_SUPPORTED by cudnnInitTransformDest/c09"),
    ),
    Difference(
        "V-transform-format", "cudnnSetTensorTransformDescriptor", ("cudnnSetTensorTransformDescriptor/c17",),
        "An unsupported destFormat is NOT_SUPPORTED.", "-1 is accepted.", "NOT_SUPPORTED.",
        cases=("transform/test_vector_format_is_not_supported*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnSetTensorTransformDescriptor/c17",), theirs="SUCCESS"),),
        says=("succeeded, not NOT_SUPPORTED by cudnnSetTensorTransformDescriptor/c17",),
    ),
    Difference(
        "V-filter-channels", "cudnnGetFilter4dDescriptor", ("cudnnGetFilter4dDescriptor/c05",), "Returns the c that was set.",
        "Returns 4 for every 32 channels of an INT8x32 filter.", "What was set.",
        cases=("filter_descriptors/test_vectors_4d_getter*",),
        recorded=(Disagreement("result", ("cudnnGetFilter4dDescriptor",), when=of_type("INT8x32"), expects=an_eighth_of_the_channels),),
        says=("assertion *",),
    ),
    Difference(
        "V-reduce-small", "cudnnReduceTensor", ("cudnnReduceTensor/c30", "cudnnReduceTensor/c31"),
        "Insufficient indices or workspace are INVALID_VALUE.", "Answers BAD_PARAM.", "INVALID_VALUE: the status list.",
        cases=("reduce_tensor/test_indices_too_small*", "reduce_tensor/test_workspace_too_small*", "reduce_tensor/test_null_indices*",),
        recorded=(Disagreement(ours="INVALID_VALUE", theirs="BAD_PARAM", clauses=("cudnnReduceTensor/c3[01]",)),),
        says=("cudnnReduceTensor BAD_PARAM, not INVALID_VALUE",),
    ),
    Difference(
        "V-reduce-indices", "cudnnReduceTensor", ("cudnnReduceTensor/c28",),
        "Indices of anything but MIN and MAX are BAD_PARAM.", "Accepts them for AMAX and NORM2 with some index types.",
        "BAD_PARAM (D095).", cases=("reduce_tensor/test_indices_of_other_operations*",),
        recorded=(Disagreement(ours="BAD_PARAM", clauses=("cudnnReduceTensor/c28",), theirs="SUCCESS"),),
        says=("succeeded, not BAD_PARAM by cudnnReduceTensor/c28",),
    ),
    Difference(
        "V-reduce-index-width", "cudnnReduceTensor", ("cudnnReduceTensor/c08",),
        "Four widths of indices, of which only 32 bits are currently supported.", "Every width is accepted, 32 bits are written and measured.",
        "Each width holds its own integers (D095).",
        recorded=(
            Disagreement("result", ("cudnnGetReductionIndicesSize",), when=has("reduceTensorIndicesType", *INDEX_BYTES), expects=four_bytes_each),
            Disagreement(
                ours="INVALID_VALUE", theirs="SUCCESS", clauses=("cudnnReduceTensor/c30",), when=has("reduceTensorIndicesType", "CUDNN_64BIT_INDICES"),
            ),
            Disagreement("outputs", ("cudnnReduceTensor",), when=has("reduceTensorIndicesType", *INDEX_BYTES), expects=indices_of_32_bits),
        ),
    ),
    Difference(
        "V-reduce-infinities", "cudnnReduceTensor", ("cudnnReduceTensor/c02",), "The minimum or maximum of the elements.",
        "Starts from the largest finite number: rows of infinities, or of infinities and NaN, give it instead.",
        "The minimum or maximum, infinite where it is (D098).",
        cases=("reduce_tensor/test_extrem*",),
        recorded=(
            Disagreement(
                "outputs", ("cudnnReduceTensor",),
                when=both(has("reduceTensorOp", "CUDNN_REDUCE_TENSOR_MIN", "CUDNN_REDUCE_TENSOR_MAX"), holds("A", np.isinf)),
            ),
        ),
        says=("wrong C: other numbers; indices: other numbers",),
    ),
    Difference(
        "V-pooling-infinities", "cudnnPoolingForward", ("cudnnPoolingMode_t/c01",), "The maximum of the window.",
        "Starts from the lowest finite number, which a window of -infinity gives.", "-infinity, the maximum.",
        cases=("pooling/test_maximum_of_nan_and_infinity*",),
        recorded=(
            Disagreement("outputs", ("cudnnPoolingForward",), when=both(has("mode", *ANY_MAXIMUM), holds("x", np.isneginf))),
        ),
        says=("wrong y: other numbers",),
    ),
    Difference(
        "V-pooling-empty-average", "cudnnPoolingForward", ("cudnnPoolingMode_t/c02", "cudnnPoolingMode_t/c03"),
        "The average of a window; the average of an empty window is not defined.", "NaN in some configurations, 0 or -0 in others.",
        "NaN, 0 divided by 0 (D091).",
        cases=("pooling/test_forward_windows_in_the_padding*", "pooling/test_forward_output_of_any_size*",
               "pooling/test_average_partly_beyond_the_padding*"),
        recorded=(Disagreement("outputs", ("cudnnPoolingForward",), when=both(has("mode", *AVERAGES), empty_windows)),),
        says=("wrong y: as before the call, zero, other numbers", "wrong y: zero"),
    ),
    Difference(
        "V-pooling-bfloat16", "cudnnPoolingForward", ("cudnnPoolingForward/c11",),
        "Data types that are not listed are NOT_SUPPORTED.", "BFLOAT16 is computed.", "NOT_SUPPORTED: the status list.",
        cases=("pooling/test_forward_other_types_are_not_supported*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnPoolingForward/c11",), when=of_type("BFLOAT16"), theirs="SUCCESS"),),
        says=("succeeded, not NOT_SUPPORTED by cudnnPoolingForward/c11",),
    ),
    Difference(
        "V-pooling-strides", "cudnnPoolingBackward", ("cudnnPoolingBackward/c14",),
        "wStride other than 1 is given as an unsupported configuration.", "Computes any strides.",
        "NOT_SUPPORTED, except for NHWC, which another sentence supports (D189).",
        cases=("pooling/test_backward_needs_contiguous*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", clauses=("cudnnPoolingBackward/c14",), theirs="SUCCESS"),),
        says=("succeeded, not NOT_SUPPORTED by cudnnPoolingBackward/c14",),
    ),
    Difference(
        "V-pooling-half-sums", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01",),
        "Names no precision of the sums.", "CUDNN_POOLING_MAX adds the gradients of overlapping windows in the 16-bit type.",
        "Added in float and rounded once (D188).",
        cases=("pooling/test_backward_special_values*HALF*", "pooling/test_backward_types_and_blending*",),
        recorded=(
            Disagreement("outputs", ("cudnnPoolingBackward",), when=both(has("mode", "CUDNN_POOLING_MAX"), of_type("HALF", "BFLOAT16"))),
        ),
        says=("wrong dx: other numbers",),
    ),
    Difference(
        "V-pooling-other-y", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01",),
        "y is the output of the forward call.", "CUDNN_POOLING_MAX_DETERMINISTIC compares x with y, so another y changes the gradient.",
        "The maximum of x; with the y of the forward call both agree (D188).",
        recorded=(
            Disagreement("outputs", ("cudnnPoolingBackward",), when=has("mode", "CUDNN_POOLING_MAX_DETERMINISTIC")),
        ),
    ),
    Difference(
        "V-softmax-lowest-integers", "cudnnSoftmaxForward", ("cudnnSoftmaxForward/c01",), "The softmax of any numbers.",
        "9.19 gives 0 for lines of INT8 numbers between -128 and -126 in NCHW.", "The formula.", says=("wrong y: zero",), subjects=("vendor-9*",),
        cases=("softmax/test_the_lowest_integers?*-CUDNN_TENSOR_NCHW?",),
    ),
    Difference(
        "V-softmax-half", "cudnnSoftmaxForward", ("cudnnSoftmaxForward/c01",), "Names no precision of the arithmetic.",
        "16-bit types: about one unit in the last place, more than one rounding of the result.",
        "Computed in float and rounded once.",
        cases=("softmax/test_forward_formula*HALF*", "softmax/test_forward_formula*BFLOAT16*", "softmax/test_every_length*HALF*", "softmax/test_special_values*", "softmax/test_rows_padded*", "softmax/test_wide_ranges*", "softmax/test_rows_exceed_registers*", "softmax/test_subtracting_the_maximum*", "softmax/test_many_long_strided_rows*HALF*", "softmax/test_large_numbers?3x70x2x6-CUDNN_SOFTMAX_MODE_CHANNEL-CUDNN_DATA_HALF?", "softmax/test_rows_at_any_address*", "softmax/test_forward_takes_every_layout*-CUDNN_SOFTMAX_MODE_CHANNEL-*",),
        says=("wrong y: other numbers", "assertion *"),
        recorded=(Disagreement("outputs", ("cudnnSoftmax*",), when=of_type("HALF", "BFLOAT16")),),
    ),
])  # fmt: skip
