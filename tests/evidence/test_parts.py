"""Test parts of a sentence: each rank, type, mode, operand and field is recognised, and has a break that leaves
others alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnDataType_t, cudnnRNNDataLayout_t, cudnnTensorFormat_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.rnn import RNNDataSpec
from dualdnn.api.status import CudnnError
from dualdnn.conformance import scope
from dualdnn.conformance.breaks import HOWS, Border, Break, breaks_of
from dualdnn.conformance.breaks.demands import is_of_parameter
from dualdnn.conformance.breaks.matters import matters_of
from dualdnn.conformance.breaks.parts import listed
from dualdnn.conformance.breaks.rules import ANYWHERE

FLOAT, DOUBLE = cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnDataType_t.CUDNN_DATA_DOUBLE
NCHW = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
LAYOUT = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED


@pytest.mark.parametrize(
    "clause, parts",
    [
        ("cudnnBatchNormalizationBackward/c25", ("xDesc_4D", "xDesc_5D")),
        ("cudnnBatchNormalizationBackward/c02", ("", "xDesc_4D", "xDesc_5D")),  # Other ranks are refused, too.
        ("cudnnNormalizationBackward/c23", tuple(f"xDesc_CUDNN_DATA_{name}" for name in ("HALF", "FLOAT", "DOUBLE"))),
        ("cudnnPoolingForward/c04", ("", "xDesc_4D", "xDesc_5D")),  # The sentence counts spatial dimensions.
        ("cudnnActivationForward/c14", ("dimension 0", "dimension 1", "dimension 2", "dimension 3")),
        ("cudnnRNNForwardTraining/c48", ("xDesc", "hxDesc", "cxDesc", "wDesc", "yDesc", "hyDesc", "cyDesc", "strides", "dimensions")),
        ("cudnnRNNForwardTrainingEx/c32", ("kDesc", "keys")),  # Each of them may be NULL.
        ("miopenSoftmaxForward/c02", ("alpha", "beta")),
        ("cudnnSetRNNDescriptor_v8/c04", ("CUDNN_RNN_RELU", "CUDNN_RNN_TANH", "CUDNN_LSTM", "CUDNN_GRU")),
        ("cudnnSetTensor4dDescriptor/c04", ("n", "c", "h", "w")),
        ("cudnnPoolingBackward/c09", ("dimension 0", "dimension 1", "dimension 2", "dimension 3")),
        ("cudnnRNNForward/c17", ("type", "layout", "lengths", "batch")),
        ("cudnnTransformTensor/c01", ("x", "y")),
        ("cudnnMultiHeadAttnForward/c14", ("loWinIdx", "hiWinIdx")),  # An index is not a member of the list.
        ("cudnnSetRNNDescriptor_v6/c08", ("mode", "algo")),  # The verb is left out after "and".
        ("cudnnActivationBackward/c07", ("dx", "alpha", "beta")),
        ("cudnnBatchNormalizationForwardTraining/c10", ("bnScale", "bnBias")),  # "beta" is the paper's.
        ("cudnnGetConvolutionNdDescriptor/c01", ("arrayLength", "padA", "filterStrideA", "dilationA", "mode", "dataType")),
        ("CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR/c01", ("CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE", "CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE", "creation")),
        ("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c09", ("queried", "not set")), ("cudnnConvolutionForward/c05", ("NULL", "needed")),
        ("cudnnMakeFusedOpsPlan/c04", ("handle", "plan", "constPack")), ("cudnnFusedOpsVariantParamLabel_t/c002", ("CUDNN_PTR_XDATA", "CUDNN_PTR_BN_DBIAS")),
        ("cudnnFusedOpsConstParamLabel_t/c025", ("initialised", "convolution")), ("cudnnFusedOpsConstParamLabel_t/c027", ("shape", "layout", "dtype", "initialised")),
        ("cudnnRNNForwardInference/c10", ("stride 0", "stride 1", "stride 2")), ("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c08", ("attributeType", "elementCount", "other type")),
        ("cudnnSetTensorTransformDescriptor/c17", ("",)),  # It names what a value is not.
        ("cudnnFindRNNForwardInferenceAlgorithmEx/c24", ("dimension 1", "dimension 2", "strides")),
        ("cudnnFusedOpsVariantParamLabel_t/c120", ("NULL", "alignment")),
        ("cudnnRNNBackwardDataEx/c28", ("contents", "NULL")),
        ("cudnnNormalizationBackward/c25", ("use", "otherwise")),
        ("cudnnGetRNNParamsSize/c02", ("rnnDesc", "xDesc")),
        ("cudnnRNNBackwardWeightsEx/c16", ("workSpace", "reserveSpace", "workSpaceSizeInBytes", "reserveSpaceSizeInBytes")),
        ("cudnnRNNForwardTraining/c26", ("wDesc", "contents")),
        ("cudnnGetNormalizationBackwardWorkspaceSize/c10", ("normMeanVarDesc", "mode")),
        ("cudnnFilterDescriptor_t/c02", ("cudnnSetFilter4dDescriptor", "cudnnSetFilterNdDescriptor", "demand")),
        (
            "usecase_9.3.1_operation_graph_grouped_convolution/c20",
            ("CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS", "CUDNN_TYPE_INT64", "number", "values"),
        ),
    ],
)  # fmt: skip
def test_a_sentence_has_the_parts_that_it_names(clause, parts):
    assert matters_of(scope.clauses()[clause]) == parts


@pytest.mark.parametrize(
    "text, lists",
    [
        ("n, c, h, w are sizes of w", [["n", "c", "h", "w"]]),
        ("either n or any element of c is wrong; h of w", [["n", "c"]]),
        ("n[] and c*, h data and (LSTM only) w", [["n", "c", "h", "w"]]),
        ("n is c", []),
    ],
)
def test_members_of_a_list_have_commas_and_conjunctions_between_them(text, lists):
    assert list(listed(text, ("n", "c", "h", "w"))) == lists


@pytest.fixture
def border():
    made = Border(HOWS)
    yield made
    made.end()


def tensor(*dims, kind=FLOAT):
    made = cudnn.cudnnCreateTensorDescriptor()
    strides = TensorSpec.packed(kind, dims).strides
    cudnn.cudnnSetTensorNdDescriptor(made, kind, len(dims), dims, strides)
    return made


@pytest.mark.parametrize(
    "word, refused", [("xDesc_4D", True), ("xDesc_5D", False), ("yDesc_5D", True), ("xDesc_CUDNN_DATA_FLOAT", True)]
)
def test_a_break_of_a_rank_or_type_meets_the_parameter_that_has_it(border, word, refused):
    """The tensors of a call may differ in rank, so that a rank alone would say nothing about one of them."""
    made: list[str] = []
    border.begin(Break("refused", "cudnnActivationForward", only=(word,)))
    arguments = (None, None, 1.0, tensor(1, 1, 1, 2), None, 0.0, tensor(1, 1, 1, 2, 1), None)
    call = lambda *values: made.append("called")  # noqa: E731
    if refused:
        with pytest.raises(CudnnError):
            border.call("cudnnActivationForward", call, *arguments)
    else:
        border.call("cudnnActivationForward", call, *arguments)
    assert made == ["called"] and border.applied == refused


@pytest.mark.parametrize("kind, other", [("shape", "dims"), ("layout", "strides"), ("dtype", "data_type")])
def test_a_break_of_a_field_leaves_the_others_alone(border, kind, other):
    """A layout follows the dimensions, so strides change with them."""
    taken = []
    border.begin(Break("field", "cudnnSetActivationDescriptor", "mode", kind=kind))
    spec = TensorSpec.packed(FLOAT, (2, 3, 4, 5), cudnnTensorFormat_t.CUDNN_TENSOR_NHWC)
    value = cudnn.cudnnCreateTensorDescriptor()
    value.spec = spec
    border.call("cudnnSetActivationDescriptor", lambda *values: taken.append(values[1].spec), None, value, None, 0.0)
    (found,) = taken
    changed = {name for name in ("dims", "strides", "data_type") if getattr(found, name) != getattr(spec, name)}
    assert other in changed and border.applied and (changed <= {other} or kind == "shape")


@pytest.mark.parametrize(
    "point, named",
    [("dimension 1", True), ("dimensions", True), ("dimension 0", False), ("type", False), ("stride 0", False)],
)
def test_a_refusal_concerns_the_dimension_in_which_tensors_differ(point, named):
    message = f"dyDesc is {TensorSpec.packed(FLOAT, (2, 3, 4))}, yDesc[0] is {TensorSpec.packed(FLOAT, (2, 5, 4))}"
    assert is_of_parameter("", point, message) == named


def test_a_refusal_names_a_parameter_and_the_property():
    due, found = (TensorSpec.packed(FLOAT, dims) for dims in ((2, 3, 4), (2, 3, 5)))
    message = f"cyDesc is {found}, {due} is due"
    points = ("cyDesc, dimension 2", "cyDesc, dimension 1", "hyDesc, dimension 2")
    assert [is_of_parameter("", point, message) for point in points] == [True, False, False]


@pytest.mark.parametrize("matter", ["dilation", "groups", "dxDesc in any format"])
def test_a_row_has_a_break_of_each_thing_that_it_permits(matter):
    clause = scope.clauses()["cudnnConvolutionBackwardData/c11"]
    (broken,) = (one for one in breaks_of(clause) if one.shows(matter))
    assert broken.only[0] == "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0" and not broken.shows("refused")


@pytest.mark.parametrize(
    "change, what", [({"vector": 6}, "vector"), ({"lengths": (3, 1)}, "lengths"), ({"data_type": DOUBLE}, "type")]
)
def test_a_refusal_names_the_property_in_which_two_sequences_differ(change, what):
    one = RNNDataSpec(FLOAT, LAYOUT, 3, 2, 5, (3, 2), None)
    message = f"yDesc is {one}, dyDesc {replace(one, **change)}"
    named = {point for point in ("type", "layout", "lengths", "batch", "vector") if is_of_parameter("", point, message)}
    assert named == {what}


def test_a_refusal_names_the_strides_that_differ():
    dims = (2, 3, 4)
    message = f"y is {TensorSpec(FLOAT, dims, (12, 4, 1))}, {TensorSpec(FLOAT, dims, (13, 4, 1))} is due"
    assert [i for i in range(3) if is_of_parameter("", f"stride {i}", message)] == [0]


def test_each_value_in_a_sentence_has_its_own_breaks():
    """A break that meets all values would be noticed by a case of one of them."""
    clause = scope.clauses()["cudnnSoftmaxForward/c02"]
    for name in filter(None, matters_of(clause)):
        shown = [one for one in breaks_of(clause) if one.shows(name) and one.how not in ANYWHERE]
        assert shown and all(name in (*one.only, one.point, one.how) for one in shown)
