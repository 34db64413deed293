"""Test that dualdnn replay LOG reads API logs of cuDNN 8 and of this project back into calls, and judges them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from dualdnn.api.operations import ActivationForward, ConvolutionForward, PoolingForward
from dualdnn.api.operations.specs import INT8x32
from dualdnn.conformance.command_line import main
from dualdnn.conformance.replay.api_logs import read_log, summarized

TENSOR = """
i!     {name}: type=cudnnTensorDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[{dims}];
i!         strideA: type=int; val=[{strides}];""".lstrip("\n")
ENDING = """
i! Time: 2026-11-24T03:14:43.008315 (0d+0h+0m+1s since start)
i! Process=26805; Thread=26805; GPU=0; Handle=0x55d0c0a0; StreamId=NULL.
""".lstrip("\n")


def tensor(name, dims):
    strides = [1]
    for size in dims[:0:-1]:
        strides.insert(0, strides[0] * size)
    return TENSOR.format(name=name, dims=",".join(map(str, dims)), strides=",".join(map(str, strides)))


X, Y = tensor("srcDesc", (2, 3, 5, 7)), tensor("destDesc", (2, 3, 5, 7))
# Release 8.9.7 writes it like this: its own names in the document's order, a blank after each type, outputs by address or not at all.
ACTIVATION = f"""
I! CuDNN (v8907) function cudnnActivationForward() called:
i!     handle: type=cudnnHandle_t; streamId=0x0 (defaultStream);
i!     activationDesc: type=cudnnActivationDescriptor_t:{" "}
i!         coef: type=double; val=1.25;
i!         mode: type=cudnnActivationMode_t; val=CUDNN_ACTIVATION_TANH (2);
i!         reluNanOpt: type=cudnnNanPropagation_t; val=CUDNN_PROPAGATE_NAN (1);
i!     alpha: type=CUDNN_DATA_FLOAT; val=1.000000;
{X}
i!     srcData: location=dev; addr=0x7f0000001000;
i!     beta: type=CUDNN_DATA_FLOAT; val=0.000000;
{Y}
i!     destData: location=dev; addr={{output}};
{ENDING}
"""
SETTING = f"""
I! CuDNN (v8907) function cudnnSetTensorNdDescriptor() called:
i!     dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!     nbDims: type=int; val=4;
i!     dimA: type=int; val=[2,3,5,7];
i!     strideA: type=int; val={{strides}};
{ENDING}
"""
POOLING = f"""
I! CuDNN (v8907) function cudnnPoolingForward() called:
i!     handle: type=cudnnHandle_t; streamId=0x7f9c0a0;
i!     poolingDesc: type=cudnnPoolingDescriptor_t:
i!         mode: type=cudnnPoolingMode_t; val=CUDNN_POOLING_MAX (0);
i!         nbDims: type=int; val=2;
i!         maxpoolingNanOpt: type=cudnnNanPropagation_t; val=CUDNN_NOT_PROPAGATE_NAN (0);
i!         windowDimA: type=int; val=[3,3];
i!         paddingA: type=int; val=[1,1];
i!         strideA: type=int; val=[2,2];
i!     alpha: type=CUDNN_DATA_FLOAT; val=1.000000;
{tensor("srcDesc", (2, 3, 9, 11))}
i!     srcData: location=dev; addr=0x7f0000001000;
i!     beta: type=CUDNN_DATA_FLOAT; val=0.500000;
{tensor("destDesc", (2, 3, 5, 6))}
i!     destData: location=dev; addr=0x7f0000009000;
{ENDING}
"""
CONVOLUTION = f"""
I! CuDNN (v8907) function cudnnConvolutionForward() called:
i!     handle: type=cudnnHandle_t; streamId=0x0;
i!     alpha: type=CUDNN_DATA_FLOAT; val=1.000000;
{tensor("xDesc", (2, 4, 7, 6))}
i!     xData: location=dev; addr=0x7f0000001000;
i!     wDesc: type=cudnnFilterDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         vect: type=int; val=0;
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[6,2,3,3];
i!         format: type=cudnnTensorFormat_t; val=CUDNN_TENSOR_NCHW (0);
i!     wData: location=dev; addr=0x7f0000005000;
i!     convDesc: type=cudnnConvolutionDescriptor_t:
i!         mode: type=cudnnConvolutionMode_t; val=CUDNN_CROSS_CORRELATION (1);
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         mathType: type=cudnnMathType_t; val=CUDNN_DEFAULT_MATH (0);
i!         reorderType: type=int; val=0;
i!         arrayLength: type=int; val=2;
i!         padA: type=int; val=[1,1];
i!         strideA: type=int; val=[1,1];
i!         dilationA: type=int; val=[1,1];
i!         groupCount: type=int; val=2;
i!     algo: type=cudnnConvolutionFwdAlgo_t; val=CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM (0);
i!     workSpace: location=dev; addr=NULL_PTR;
i!     workSpaceSizeInBytes: type=size_t; val=0;
i!     beta: type=CUDNN_DATA_FLOAT; val=0.000000;
{tensor("yDesc", (2, 6, 7, 6))}
i!     yData: location=dev; addr=0x7f0000009000;
{ENDING}
"""
FILTER = f"""
I! CuDNN (v8907) function cudnnReorderFilterAndBias() called:
i!     handle: type=cudnnHandle_t; streamId=0x0;
i!     filterDesc: type=cudnnFilterDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_INT8x32 (8);
i!         vect: type=int; val=1;
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[32,1,1,1];
i!         format: type=cudnnTensorFormat_t; val=CUDNN_TENSOR_NCHW_VECT_C (2);
i!     reorderType: type=int; val=0;
i!     filterData: location=dev; addr=0x7f0000001000;
i!     reorderedFilterData: location=dev; addr=0x7f0000009000;
i!     reorderBias: type=int; val=0;
i!     biasData: location=dev; addr=NULL_PTR;
i!     reorderedBiasData: location=dev; addr=NULL_PTR;
{ENDING}
"""


def of(text):
    log = read_log(text.splitlines())
    return log, summarized(log)


def test_calls_of_nvidias_library():
    """Equal operations are found once, and equal addresses are the same memory."""
    apart, in_place = ACTIVATION.format(output="0x7f0000009000"), ACTIVATION.format(output="0x7f0000001000")
    log, found = of(apart + in_place + apart + POOLING + CONVOLUTION + SETTING.format(strides="[105,35,7,1]"))
    assert not log.foreign and not found.skipped and not found.refused and found.settings == 1
    first, second, third, fourth = found.asked
    assert isinstance(first.operation, ActivationForward) and len(found.asked[first]) == 2
    assert first.operation == second.operation and first.aliases == () and second.aliases == (("y", "x"),)
    assert first.operation.activation.coefficient == 1.25 and first.operation.x.dims == (2, 3, 5, 7)
    assert isinstance(third.operation, PoolingForward) and third.operation.beta == 0.5
    assert isinstance(fourth.operation, ConvolutionForward) and fourth.operation.convolution.group_count == 2


@pytest.mark.parametrize("dims, strides", [("2,3,5", "105,35,7,1"), ("2,3,5,7", "105,35,7")])
def test_an_array_that_is_shorter_than_its_rank_is_skipped(dims, strides):
    call = ACTIVATION.format(output="0x7f0000009000").replace(
        "dimA: type=int; val=[2,3,5,7]", f"dimA: type=int; val=[{dims}]", 1
    )
    found = summarized(read_log(call.replace("val=[105,35,7,1]", f"val=[{strides}]", 1).splitlines()))
    ((_, reason),) = found.skipped
    assert "a cudnnTensorDescriptor_t with 3 of 4 entries of " in reason and not found.asked


def test_channels_of_vectorised_filters():
    _, found = of(FILTER)
    (asked,) = found.asked
    assert (asked.operation.filterData.data_type, asked.operation.filterData.dims) == (INT8x32, (32, 32, 1, 1))


def test_calls_that_the_document_refuses_are_reported(tmp_path, capsys):
    """A refused call is named with its clause, also where its operands overlap. A log of which nothing is left fails."""
    setter, pooling = SETTING.format(strides="[105,35,7,-1]"), POOLING.replace("9000", "1004")
    accepted, path = SETTING.format(strides="[105,35,7,1]"), tmp_path / "log"
    texts = ((setter + pooling, 2), (setter, 2), (accepted + pooling, 2), (accepted + setter, 0), (setter + POOLING, 0))
    for text, status in texts:
        path.write_text(text)
        assert main(["replay", str(path), "--subject", "reference"]) == status
        assert len(capsys.readouterr().err.strip().splitlines()) == (status != 0)
    log, found = of(setter + pooling)
    assert [function for function, _ in found.refused] == ["cudnnSetTensorNdDescriptor", "cudnnPoolingForward"]
    shown = [line for line in found.lines(log) if line.startswith("refused by the document: line 2: ")]
    assert "CUDNN_STATUS_BAD_PARAM" in shown[0] and "-1" in shown[0]


def test_lines_that_cannot_be_replayed_are_skipped_with_a_reason():
    """Calls that break off, foreign lines, unknown functions and missing values are skipped with a reason."""
    broken = POOLING[: POOLING.index("i!     beta")]
    value = SETTING.format(strides="0x55").replace("strideA: type=int; val=0x55", "strideA: location=host; addr=0x55")
    unknown = POOLING.replace("cudnnPoolingForward", "cudnnPoolingInternal")
    log, found = of(f"epoch 1\n{broken}\n{value}    loss: 0.25\n{unknown}{POOLING}Segmentation fault\n{broken}")
    assert len(found.asked) == 1
    reasons = {function: reason for function, reason in found.skipped}
    assert reasons["cudnnPoolingForward"] == "the log breaks off"
    assert reasons["cudnnPoolingInternal"] == "no function of the document"
    assert reasons["cudnnSetTensorNdDescriptor"] == "strideA is not in the log, only its address"
    assert [text.strip() for _, text in log.foreign] == ["epoch 1", "loss: 0.25", "Segmentation fault"]
    shown = "\n".join(found.lines(log))
    assert "3 lines are none of a log's" in shown and "(2 calls)" in shown


@pytest.mark.parametrize("dims, said", [
    ("[-2,3,5,7]", "a cudnnTensorDescriptor_t with dimA '[-2,3,5,7]'"),
    ("[2,0,5,7]", "a cudnnTensorDescriptor_t with dimA '[2,0,5,7]'"),
    ("[2.0,3.0,5.0,7.0]", "'[2.0,3.0,5.0,7.0]' is not a whole number"),
])  # fmt: skip
def test_sizes_that_no_descriptor_has_are_skipped(dims, said):
    """The log is at fault, and no subject is blamed."""
    _, found = of(ACTIVATION.format(output="0x7f0000001000").replace("[2,3,5,7]", dims))
    assert not found.asked and [reason for _, reason in found.skipped] == [said]


@pytest.mark.parametrize("before, after, said", [
    ("windowDimA: type=int; val=[3,3]", "windowDimA: type=int; val=[0,3]", "poolingDesc: cudnnSetPooling2dDescriptor: CUDNN_STATUS_BAD_PARAM: windowHeight is 0"),
    ("strideA: type=int; val=[2,2]", "strideA: type=int; val=[2,-2]", "poolingDesc: cudnnSetPooling2dDescriptor: CUDNN_STATUS_BAD_PARAM: "),
    ("val=1.000000", "val={1: 2}", "alpha, a CUDNN_DATA_FLOAT, cannot be read: '{1: 2}' is not a number"),
    ("val=1.000000", "val={[]}", "alpha, a CUDNN_DATA_FLOAT, cannot be read: '{[]}' is not a number"),
    ("val=[2,3,9,11]", "val=5", "a cudnnTensorDescriptor_t with 1 of 4 entries of dimA"),
])  # fmt: skip
def test_values_that_no_program_has_are_skipped(before, after, said):
    """Neither the program nor a subject is blamed for what a log garbles."""
    assert before in POOLING
    _, found = of(POOLING.replace(before, after))
    ((_, reason),) = found.skipped
    assert not found.asked and not found.refused and reason.startswith(said)


def test_an_enumerator_without_its_number_is_read_by_its_name():
    _, found = of(POOLING.replace("CUDNN_POOLING_MAX (0)", "CUDNN_POOLING_MAX"))
    assert not found.skipped and len(found.asked) == 1


@pytest.mark.parametrize("text", ["", "nothing of a log\n", "CuDNN (v8907) function cudnnCreate() called:"])
def test_texts_of_little(text):
    log, found = of(text)
    assert not found.asked and len(log.calls) == text.count("cudnnCreate")


OURS = """
import numpy as np
from dualdnn.api import cudnn as c
with c.cudnnCreate(backend="reference") as h:
    d = c.cudnnCreateTensorDescriptor()
    c.cudnnSetTensor4dDescriptor(d, c.CUDNN_TENSOR_NCHW, c.CUDNN_DATA_FLOAT, 2, 3, 4, 5)
    x, y = h.zeros(480), h.zeros(480)
    for out in (y, x):
        c.cudnnSoftmaxForward(h, c.CUDNN_SOFTMAX_LOG, c.CUDNN_SOFTMAX_MODE_CHANNEL, 1, d, x, float("0"), d, out)
    c.cudnnSetTensor(h, d, y, 0.5)
    loss, probs = c.cudnnCreateCTCLossDescriptor(), c.cudnnCreateTensorDescriptor()
    c.cudnnSetTensorNdDescriptor(probs, c.CUDNN_DATA_FLOAT, 3, (5, 2, 3), (6, 3, 1))
    c.cudnnSetCTCLossDescriptor(loss, c.CUDNN_DATA_FLOAT)
    costs, work = h.zeros(8), h.zeros(64)
    lists = (1, 2, 1), (2, 1), (5, 4)
    c.cudnnCTCLoss(h, probs, h.zeros(120), *lists, costs, probs, h.zeros(120), c.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, work, 64)
"""


def test_our_own_log(tmp_path, capsys):
    """The command judges the calls on each subject, with the given seed."""
    log = tmp_path / "calls.log"
    environment = {**os.environ, "CUDNN_LOGINFO_DBG": "1", "CUDNN_LOGDEST_DBG": str(log)}
    subprocess.run([sys.executable, "-c", OURS], check=True, env=environment)
    assert main(["replay", str(log), "--subject", "reference", "--subject", "accelerated:emulated", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "4 compute, 4 different ones; 3 set descriptors" in said
    assert "reference: 4 of 4 operations passed" in said and "accelerated:emulated: 4 of 4 operations passed" in said
    assert "skipped" not in said and "refused" not in said


def test_a_subject_that_fails(tmp_path, capsys, monkeypatch):
    """The output names the operation and the first line of its calls, and the exit status is 1."""
    import dualdnn.conformance.replay.api_logs as module

    log = tmp_path / "calls.log"
    log.write_text(POOLING + ACTIVATION.format(output="0x7f0000009000"))
    genuine = module.attempt

    def attempt(caller, operation, *rest):
        result = genuine(caller, operation, *rest)
        if isinstance(operation, PoolingForward):
            result.problems.append("injected")
        return result

    monkeypatch.setattr(module, "attempt", attempt)
    assert main(["replay", str(log)]) == 1
    said = capsys.readouterr().out
    assert "reference: 1 of 2 operations passed" in said
    assert "failed: line 2: cudnnPoolingForward: injected\n  PoolingForward(" in said
