"""Breaks fit what a sentence says: its statements, the networks that it is about, and where elements are."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnDataType_t,
    cudnnNanPropagation_t,
    cudnnPoolingMode_t,
    cudnnTensorFormat_t,
)
from dualdnn.api.operations import ActivationForward, ActivationSpec, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.status import CudnnError
from dualdnn.conformance import scope
from dualdnn.conformance.breaks import HOWS, Border, Break, breaks_of
from dualdnn.conformance.breaks.border import parameters_of
from dualdnn.conformance.breaks.fits import fits
from dualdnn.conformance.breaks.matters import matters_of
from dualdnn.conformance.breaks.memory import MEMORY_BREAKS, Judged
from dualdnn.conformance.breaks.rules import NARROWED
from dualdnn.conformance.breaks.statements import DEMAND, DESCRIPTION, PERMISSION, sorts_of
from dualdnn.conformance.calls.fused_ops import const_pack, variant_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_convolution import added
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import inference
from dualdnn.conformance.suite.proofs import PROVEN, SHOWN, evidence
from dualdnn.conformance.trial import Caller, prepare

FLOAT, DOUBLE, INT8 = (cudnnDataType_t[f"CUDNN_DATA_{name}"] for name in ("FLOAT", "DOUBLE", "INT8"))
NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NAN, 0.0)
CONST = "cudnnFusedOpsConstParamLabel_t"
VARIANT = "cudnnFusedOpsVariantParamLabel_t"


@pytest.fixture
def border():
    made = Border(HOWS)
    yield made
    made.end()


@pytest.mark.parametrize(
    "clause, how, wanted",
    [
        (f"{CONST}/c014", "element", False),  # A step that is left out is broken by making it.
        (f"{CONST}/c014", "taken", True),
        (f"{CONST}/c078", "enumerator", False),  # The label takes a descriptor, not a placeholder.
        (f"{CONST}/c078", "argument", True),
        (f"{VARIANT}/c069", "element", False),  # The meaning of a pointer is broken at the pointer.
        (f"{VARIANT}/c069", "pointed", True),
        ("cudnnOpTensor/c05", "unread", False),  # Only a refusal shows a demand.
        ("cudnnOpTensor/c05", "accepted", True),
        ("cudnnDivisiveNormalizationBackward/c11", "unwritten", False),  # Only reading at another place shows it.
        ("cudnnDivisiveNormalizationBackward/c11", "misplaced", True),
        ("cudnnSetCTCLossDescriptorEx/c03", "stored", False),  # "Any setting" does not define a value.
        ("cudnnPoolingForward/c07", "element", False),
        ("cudnnPoolingForward/c07", "ties away from even", True),
        (
            "cudnnSetActivationDescriptor/c04",
            "enumerator",
            False,
        ),  # The mode is the place of a sentence on another one.
        ("cudnnSetActivationDescriptor/c04", "meaning", True),
        ("cudnnSetRNNDescriptor_v8/c18", "enumerator", False),  # What is permitted is broken by refusing it.
        ("cudnnSetRNNDescriptor_v8/c18", "refused", True),
        ("cudnnRNNBackwardDataEx/c38", "argument", False),  # NULL is offered, and nothing else.
        ("cudnnRNNBackwardDataEx/c38", "NULL refused", True),
        ("CUDNN_BACKEND_TENSOR_DESCRIPTOR/c20", "result", False),  # What is ignored shows in no result.
        ("cudnnRNNForward/c30", "unwritten", False),  # What NULL means shows where NULL is passed.
        ("cudnnRNNForward/c30", "NULL refused", True),
        ("cudnnReduceTensor/c09", "unwritten", False),
        ("cudnnReduceTensor/c09", "next index", True),
        ("cudnnMultiHeadAttnForward/c29", "unread", False),
        ("cudnnMultiHeadAttnForward/c29", "accepted", True),
        ("cudnnReduceTensorOp_t/c01", "result", False),  # What a value selects shows in no getter.
        ("cudnnReduceTensorOp_t/c01", "enumerator", True),
        ("cudnnMultiHeadAttnBackwardData/c19", "unread", False),  # The size of memory says nothing about its contents.
        ("cudnnMultiHeadAttnBackwardData/c19", "accepted", True),
        ("cudnnNormalizationForwardTraining/c15", "element", False),
        ("cudnnNormalizationForwardTraining/c15", "held contents refused", True),
    ],
)
def test_a_break_fits_what_a_sentence_says(clause, how, wanted):
    found = scope.clauses()[clause]
    assert fits(found, Break(how, found.function, "x" if how == "argument" else "")) == wanted
    assert how not in {one.how for one in breaks_of(found)} or wanted


@pytest.mark.parametrize(
    "clause, sorts",
    [
        ("cudnnNormalizationForwardTraining/c26", (DESCRIPTION, PERMISSION, DEMAND)),
        ("cudnnBatchNormalizationForwardTraining/c16", (PERMISSION, DEMAND)),
        ("cudnnTransformTensor/c02", (DEMAND, PERMISSION)),
        (f"{VARIANT}/c005", (DESCRIPTION, DEMAND)),
        ("cudnnOpTensor/c19", (PERMISSION, DEMAND)),
        ("cudnnActivationForward/c02", ()),
    ],
)
def test_each_statement_of_a_sentence_is_a_matter(clause, sorts):
    found = scope.clauses()[clause]
    assert sorts_of(found) == sorts and set(sorts) <= set(matters_of(found))


def test_an_operand_that_is_read_and_written_has_two_matters():
    assert matters_of(scope.clauses()["cudnnOpTensor/c22"]) == ("unread C", "unwritten C")
    assert Break("unread", "cudnnOpTensor", "C").shows("unread C")
    assert not Break("unread", "cudnnOpTensor", "C").shows("unwritten C")


def test_the_beta_of_the_paper_is_not_taken_for_a_scaling_factor():
    found = breaks_of(scope.clauses()["cudnnNormalizationForwardInference/c16"])
    assert {"normScale", "normBias"} <= {one.point for one in found} and "beta" not in {one.point for one in found}


def test_two_ways_to_leave_a_step_out_are_two_matters():
    assert {"taken", "CUDNN_ACTIVATION_IDENTITY"} <= set(matters_of(scope.clauses()[f"{CONST}/c023"]))


def test_reads_and_writes_of_a_sentence_are_two_statements():
    matters = matters_of(scope.clauses()["cudnnReorderFilterAndBias/c07"])
    assert {"unread biasData", "unwritten reorderedBiasData"} <= set(matters)


def test_enumerators_of_other_sequences_of_fused_operations_stay():
    found = [b for b in breaks_of(scope.clauses()[f"{CONST}/c185"]) if b.how == "enumerator"]
    assert found and all("CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION" in one.only for one in found)


def test_a_row_of_a_table_is_about_one_filter_format_and_rank():
    found = [b for b in breaks_of(scope.clauses()["cudnnConvolutionBackwardData/c20"]) if b.how == "refused"]
    assert found and all({"CUDNN_TENSOR_NHWC", "dyDesc_5D"} <= {*one.only} for one in found)


def test_results_that_may_differ_are_not_broken_by_results_that_do():
    """Unequal results violate no sentence on results that are not deterministic."""
    found = breaks_of(scope.clauses()["cudnnConvolutionBwdFilterAlgo_t/c02"])
    assert {(one.how, one.point) for one in found} == {("result", "determinism")}


def test_the_check_of_a_demand_shows_the_demand_alone():
    clause = "cudnnSetPoolingNdDescriptor/c07"
    result = {"subject": "reference", "id": "a/test", "outcome": "passed", "clauses": [clause]}
    checked, described = (
        f"no check of {clause}",
        f"break of {clause}, {DESCRIPTION}: argument cudnnSetPoolingNdDescriptor.strideA",
    )
    assert evidence([result | {"noticed": [checked]}])["reference"][clause]["evidence"] == SHOWN
    assert evidence([result | {"noticed": [checked, described]}])["reference"][clause]["evidence"] == PROVEN


@pytest.mark.parametrize(
    "clause, function, place",
    [
        ("cudnnGetRNNLinLayerBiasParams/c09", "cudnnGetRNNLinLayerBiasParams", "CUDNN_UNIDIRECTIONAL"),
        ("cudnnRNNForward/c03", "cudnnRNNForward", "CUDNN_BIDIRECTIONAL"),
        ("cudnnRNNForward/c06", "cudnnRNNForward", "CUDNN_BIDIRECTIONAL"),
        ("cudnnRNNBackwardData_v8/c40", "cudnnRNNBackwardData_v8", "CUDNN_LSTM"),
        ("cudnnRNNForwardTrainingEx/c16", "cudnnRNNForwardTrainingEx", "CUDNN_LSTM"),
    ],
)
def test_other_networks_are_not_broken(clause, function, place):
    """Only what is NULL in other networks is broken there."""
    found = [one for one in breaks_of(scope.clauses()[clause]) if one.function == function]
    own = [one for one in found if not one.matter.endswith("of other cells")]
    assert own and all(place in one.only for one in own)


def test_groups_alone_are_refused(border):
    """The descriptor of a convolution says how many groups it has."""
    found = breaks_of(scope.clauses()["cudnnConvolutionForward/c35"])[0]
    assert str(found) == "refused cudnnConvolutionForward where CUDNN_TENSOR_NHWC, xDesc_4D, group_count=[2-9]"
    for groups in (1, 2):
        convolution = cudnn.cudnnCreateConvolutionDescriptor()
        cudnn.cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, 0, FLOAT)
        cudnn.cudnnSetConvolutionGroupCount(convolution, groups)
        assert border.names(Break("refused", only=found.only[-1:]), found.function, [convolution]) == (groups == 2)


def test_unequal_steps_alone_are_refused(border):
    step, other = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    for made, batch in ((step, 2), (other, 1)):
        cudnn.cudnnSetTensorNdDescriptor(made, FLOAT, 3, (batch, 4, 1), (4, 1, 1))
    values = {p.name: None for p in parameters_of("cudnnGetRNNWorkspaceSize")}
    for steps, refused in (([step, step], False), ([step, other], True)):
        border.begin(Break("unequal refused", "cudnnGetRNNWorkspaceSize", "xDesc"))
        call = partial(border.call, "cudnnGetRNNWorkspaceSize", lambda *_: 0, *{**values, "xDesc": steps}.values())
        with pytest.raises(CudnnError) if refused else nullcontext():
            call()
        assert border.applied == refused


def test_a_sentence_on_the_other_networks_has_no_place():
    text = "Without LSTM projection, or for other modes, dimension 2 of dhyDesc equals hiddenSize."
    found = breaks_of(replace(scope.clauses()["cudnnRNNBackwardDataEx/c15"], text=text))
    assert found and not any("CUDNN_LSTM" in one.only for one in found)


def relu(border, *values):
    """Return the activation of numbers, called through a border."""
    handle, activation = cudnn.cudnnCreate(backend="reference"), cudnn.cudnnCreateActivationDescriptor()
    cudnn.cudnnSetActivationDescriptor(activation, RELU.mode, NAN, 0.0)
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(tensor, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, FLOAT, 1, 1, 1, len(values))
    x, y = handle.to_device(np.array(values, np.float32)), handle.allocate(4 * len(values))
    call = cudnn.cudnnActivationForward
    border.call("cudnnActivationForward", call, handle, activation, 1.0, tensor, x, 0.0, tensor, y)
    return y.to_host(np.float32, (len(values),)).tolist()


def test_elements_are_read_one_place_further_on(border):
    border.begin(Break("misread", "cudnnActivationForward", "x"))
    assert relu(border, -1.0, 2.0, 3.0) == [3.0, 0.0, 2.0] and border.applied


def test_one_of_several_enumerators_is_enough(border):
    border.begin(Break("misread", "cudnnActivationForward", "x", only=("CUDNN_ACTIVATION_TANH|CUDNN_ACTIVATION_RELU",)))
    assert relu(border, 1.0, 2.0) == [2.0, 1.0]
    border.begin(Break("misread", "cudnnActivationForward", "x", only=("CUDNN_ACTIVATION_TANH|CUDNN_ACTIVATION_ELU",)))
    assert relu(border, 1.0, 2.0) == [1.0, 2.0]


def judged(operation, **values):
    """Return (what a trial would judge of these contents, the memory of y)."""
    memory = {name: content.copy().view(np.uint8) for name, content in values.items()}
    return Judged(operation, {**memory, "y": memory["y"].copy()}, {}, memory, dict.fromkeys(memory, 0)), memory["y"]


def test_elements_are_written_one_place_further_on():
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 3))
    values = np.array([1, 2, 3], np.float32)
    found, y = judged(ActivationForward(RELU, 1.0, 0.0, spec, spec), x=values, y=values)
    assert MEMORY_BREAKS["misplaced"](found, "y") and y.view(np.float32).tolist() == [3, 1, 2]
    assert not MEMORY_BREAKS["misplaced"](found, "dx")


@pytest.mark.parametrize("values, applies", [([1 / 3, 2.0], True), ([0.5, 2.0], False)])
def test_doubles_lose_what_a_float_does_not_hold(values, applies):
    spec = TensorSpec.packed(DOUBLE, (1, 1, 1, 2))
    numbers = np.array(values)
    found, y = judged(ActivationForward(RELU, 1.0, 0.0, spec, spec), x=numbers, y=numbers)
    assert MEMORY_BREAKS[NARROWED](found, "") == applies
    assert y.view(np.float64).tolist() == numbers.astype(np.float32).tolist()


@pytest.mark.parametrize(
    "how, pairs, expected", [("ties away from even", [1, 2], [1]), ("truncated", [3, 4], [3]), ("wrapped around", [127, 127], [-2])]
)  # fmt: skip
def test_a_break_rounds_integers_in_another_way(how, pairs, expected):
    """The average of two numbers, doubled where the break needs a number that no byte holds."""
    mode = cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    pooling = PoolingSpec(mode, NAN, (1, 2), (0, 0), (1, 2))
    x, y = TensorSpec.packed(INT8, (1, 1, 1, 2)), TensorSpec.packed(INT8, (1, 1, 1, 1))
    operation = PoolingForward(pooling, 2.0 if how == "wrapped around" else 1.0, 0.0, x, y)
    right = np.array([np.clip(np.round(operation.alpha * np.mean(pairs)), -128, 127)], np.int8)
    found, written = judged(operation, x=np.array(pairs, np.int8), y=right)
    assert MEMORY_BREAKS[how](found, "") and written.view(np.int8).tolist() == expected


def test_a_pointer_of_a_pack_leads_elsewhere(border):
    handle, operation = cudnn.cudnnCreate(backend="reference"), inference()
    caller = Caller(cudnn, handle)
    buffers = {name: handle.to_device(content) for name, content in prepare(operation, "positive", 0).items()}
    plan = cudnn.cudnnCreateFusedOpsPlan(const_pack(caller, operation).spec.ops)
    cudnn.cudnnMakeFusedOpsPlan(handle, plan, const_pack(caller, operation))
    results = []
    for label in ("", "CUDNN_PTR_BN_SCALE", "CUDNN_SCALAR_DOUBLE_BN_EPSILON", "CUDNN_PTR_BN_EQSCALE"):
        handle_of = variant_pack(caller, operation, buffers)
        border.begin(Break("pointed", "cudnnFusedOpsExecute", label, kind="output" if "EQ" in label else "input"))
        border.broken = border.broken if label else None
        border.call("cudnnFusedOpsExecute", cudnn.cudnnFusedOpsExecute, handle, plan, handle_of)
        results.append(buffers["eqScale"].to_host(np.float32, 37))
        assert border.applied == bool(label)
    right, without_scale, other_epsilon, kept = results
    assert right.all() and not without_scale.any()
    assert not np.allclose(other_epsilon, right) and np.array_equal(kept, other_epsilon)


def test_a_step_that_null_leaves_out_is_made(border):
    handle = cudnn.cudnnCreate(backend="reference")
    operation = added(None, ("zEqScale", "zEqBias"))
    pack = const_pack(Caller(cudnn, handle), operation, BN_Z_EQSCALEBIAS_DESC=None)
    border.begin(Break("taken", "cudnnMakeFusedOpsPlan", "CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC"))
    plan = cudnn.cudnnCreateFusedOpsPlan(pack.spec.ops)
    border.call("cudnnMakeFusedOpsPlan", cudnn.cudnnMakeFusedOpsPlan, handle, plan, pack)
    assert border.applied
