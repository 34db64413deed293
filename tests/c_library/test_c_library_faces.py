"""Test that programs of release 9 link libcudnn.so.9, and find its numbers and calls."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dualdnn.api.abi.faces import face
from dualdnn.api.abi.header import header
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnStatus_t

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

PROGRAMS = sorted((Path(__file__).parents[2] / "examples" / "c").glob("*.c"))


@pytest.fixture(scope="module")
def libraries(built_library):
    return built_library(9, runtime=True).parent


def compiled(libraries, source, program, *options):
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", *options, f"-I{libraries / 'include'}", str(source)]
    command += ["-o", str(program), f"-L{libraries}", "-lcudnn", "-l:libcudart.so.12", "-lm"]
    subprocess.run(command, check=True)
    return program


def run(libraries, program, **environment):
    given = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(libraries), **environment}
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=120, env=given)


def test_names_and_the_version_node(libraries):
    listed = subprocess.run(["nm", "-D", str(libraries / "libcudnn.so.9")], capture_output=True, text=True).stdout
    exported = set(re.findall(r" T (\w+)@@libcudnn\.so\.9\n", listed))
    assert exported == {*functions(), *face(9).served, *face(9).absent, *face(9).sizes, "cudnnGetLastErrorString"}
    assert (libraries / "libcudnn_ops.so.9").resolve().name == (libraries / "libcudnn.so").resolve().name


def test_numbers_of_the_release(libraries, tmp_path):
    """Statuses, versions, a later enumerator, a later call and a missing call are right. The program prints what fails."""
    source = tmp_path / "numbers.c"
    source.write_text("""
#include <cudnn.h>
#include <stdio.h>
#include <string.h>
#define HOLDS(what) do { if (!(what)) { puts(#what); return 1; } } while (0)
int main(void) {
  cudnnHandle_t handle; cudnnTensorDescriptor_t x; cudnnCTCLossDescriptor_t loss; cudnnRNNDescriptor_t rnn; cudnnConvolutionDescriptor_t c;
  cudnnFilterDescriptor_t w; cudnnConvolutionFwdAlgoPerf_t rows[10]; cudnnDataType_t type; cudnnLossNormalizationMode_t mode;
  cudnnCTCGradMode_t gradients; cudnnAlgorithmDescriptor_t algorithm; cudnnAlgorithmPerformance_t performance; cudnnStatus_t status;
  cudnnRNNAlgo_t algo; cudnnRNNClipMode_t clip; cudnnNanPropagation_t nan; double low, high; char text[400]; int number, i, refused = 0; float time; size_t memory;
  HOLDS(CUDNN_VERSION == 91900 && cudnnGetVersion() == 91900 && cudnnGetMaxDeviceVersion() == 1210);
  HOLDS(!cudnnGetProperty(MAJOR_VERSION, &number) && number == 9);
  HOLDS(!cudnnGetProperty(MINOR_VERSION, &number) && number == 19);
  HOLDS(CUDNN_STATUS_NOT_SUPPORTED == 3000 && CUDNN_STATUS_BAD_PARAM == 2000 && CUDNN_STATUS_NOT_INITIALIZED == 1001);
  HOLDS(!cudnnCreate(&handle) && !cudnnCreateTensorDescriptor(&x));
  HOLDS(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, -1, 1, 1, 1) == CUDNN_STATUS_BAD_PARAM);
  cudnnGetLastErrorString(text, sizeof text);
  HOLDS(strstr(text, "cudnnSetTensor4dDescriptor/c"));
  HOLDS(cudnnSetTensorNdDescriptor(x, CUDNN_DATA_FLOAT, 9, (int[9]){1}, (int[9]){1}) == CUDNN_STATUS_NOT_SUPPORTED);
  HOLDS(cudnnGetTensorSizeInBytes(x, 0) == 2000);
  HOLDS(!strcmp(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED), "CUDNN_STATUS_NOT_SUPPORTED"));
  HOLDS(!strcmp(cudnnGetErrorString(CUDNN_STATUS_SUCCESS), "CUDNN_STATUS_SUCCESS"));
  HOLDS(!strcmp(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED_SHAPE), "CUDNN_STATUS_NOT_SUPPORTED_SHAPE"));
  HOLDS(!strcmp(cudnnGetErrorString((cudnnStatus_t)9), "CUDNN_UNKNOWN_STATUS"));
  HOLDS(!cudnnCreateCTCLossDescriptor(&loss));
  HOLDS(!cudnnSetCTCLossDescriptor_v9(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_CTC_SKIP_OOB_GRADIENTS, 7));
  HOLDS(!cudnnGetCTCLossDescriptor_v9(loss, &type, &mode, &gradients, &number) && gradients == CUDNN_CTC_SKIP_OOB_GRADIENTS && number == 7);
  HOLDS(cudnnSetCTCLossDescriptor_v9(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, (cudnnCTCGradMode_t)7, 7) == 2000);
  HOLDS(!cudnnCreateRNNDescriptor(&rnn));
  HOLDS(!cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
      CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 4, 4, 4, 1, NULL, 0));
  HOLDS(!cudnnGetRNNDescriptor_v8(rnn, &algo, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) && algo == CUDNN_RNN_ALGO_PERSIST_STATIC);
  HOLDS(!cudnnRNNSetClip_v9(rnn, CUDNN_RNN_CLIP_MINMAX, -2, 3) && !cudnnRNNGetClip_v9(rnn, &clip, &low, &high));
  HOLDS(clip == CUDNN_RNN_CLIP_MINMAX && low == -2 && high == 3 && !cudnnRNNGetClip_v9(rnn, &clip, NULL, NULL));
  HOLDS(!cudnnRNNGetClip_v8(rnn, &clip, &nan, &low, &high) && nan == CUDNN_PROPAGATE_NAN && high == 3);
  HOLDS(cudnnRNNSetClip_v9(rnn, CUDNN_RNN_CLIP_MINMAX, 3, -2) == CUDNN_STATUS_BAD_PARAM);
  HOLDS(!cudnnGraphVersionCheck() && !cudnnAdvVersionCheck() && !cudnnSubquadraticOpsVersionCheck());
  HOLDS(cudnnCausalConv1dForward(0, 0, 0, 0, 0, 1, 1, 1, 1, CUDNN_DATA_FLOAT, CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU) == CUDNN_STATUS_NOT_SUPPORTED);
  for (i = 0; i < 2; ++i) HOLDS(cudnnBackendPopulateCudaGraph(handle, NULL, NULL, NULL) == CUDNN_STATUS_NOT_SUPPORTED);
  HOLDS(!cudnnCreateConvolutionDescriptor(&c) && !cudnnCreateFilterDescriptor(&w));
  HOLDS(!cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 5, 5));
  HOLDS(!cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 2, 2, 3, 3));
  HOLDS(!cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  HOLDS(!cudnnSetConvolutionMathType(c, CUDNN_FMA_MATH));
  HOLDS(!cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, c, x, 10, &number, rows) && number == 8 && rows[0].mathType == CUDNN_FMA_MATH);
  for (i = 0; i < number; ++i) refused += rows[i].status == CUDNN_STATUS_NOT_SUPPORTED;
  HOLDS(refused > 0 && rows[0].status == CUDNN_STATUS_SUCCESS);
  HOLDS(!cudnnCreateAlgorithmDescriptor(&algorithm) && !cudnnCreateAlgorithmPerformance(&performance, 1));
  HOLDS(!cudnnSetAlgorithmDescriptor(algorithm, (cudnnAlgorithm_t){.algo.convFwdAlgo = CUDNN_CONVOLUTION_FWD_ALGO_GEMM}));
  HOLDS(!cudnnSetAlgorithmPerformance(performance, algorithm, CUDNN_STATUS_ALLOC_FAILED, 1, 2));
  HOLDS(!cudnnGetAlgorithmPerformance(performance, &algorithm, &status, &time, &memory) && status == CUDNN_STATUS_ALLOC_FAILED);
  return cudnnDestroy(handle);
}
""")
    ran = run(libraries, compiled(libraries, source, tmp_path / "numbers", "-Wno-missing-field-initializers"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = [line for line in ran.stderr.splitlines() if "PopulateCudaGraph" in line]
    assert len(told) == 1 and "CUDNN_STATUS_NOT_SUPPORTED" in told[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_programs_of_the_document(libraries, tmp_path, program):
    """Every program of release 8 compiles with the header of release 9, and finds what it expects."""
    ran = run(libraries, compiled(libraries, program, tmp_path / program.stem), DUALDNN_AS="8.0.3")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_status_has_one_number_and_comes_back():
    chosen = face(9)
    numbers = [chosen.status(status) for status in cudnnStatus_t]
    assert len(set(numbers)) == len(numbers)
    assert chosen.documented(2007) == cudnnStatus_t.CUDNN_STATUS_BAD_PARAM
    for status in cudnnStatus_t:
        back = chosen.documented(chosen.status(status))
        assert back == status or status == cudnnStatus_t.CUDNN_STATUS_VERSION_MISMATCH
    assert all(face(8).status(status) == status for status in cudnnStatus_t)
    assert "libcudnn.so.9" not in header() and "3000" not in header()
    with pytest.raises(ValueError, match="face is 7, there are 8 and 9"):
        face(7)
