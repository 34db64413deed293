"""The C library: built once, called by C programs and judged as any library is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dualdnn.api.abi.build import NAME, build
from dualdnn.api.abi.header import header
from dualdnn.api.document import functions

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("c library"))


def compiled(library: Path, folder: Path, text: str, compiler: str = "gcc", *options: str) -> Path:
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    command = [
        compiler,
        *options,
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{library.parent / 'include'}",
        str(source),
        "-o",
        str(program),
    ]
    command += [f"-L{library.parent}", f"-l:{NAME}", f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def run(program: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=120, env={**ENVIRONMENT, **environment}
    )


def test_every_function_is_exported(library):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    exported = {line.split()[-1].partition("@")[0] for line in listed.splitlines() if "cudnn" in line}
    assert exported - {NAME} == {*functions(), "cudnnGetLastErrorString"}
    assert all(f"@{NAME}" in line or f"@@{NAME}" in line for line in listed.splitlines() if " T " in line)


def test_nothing_is_compiled_twice(library):
    before = library.stat().st_mtime_ns
    assert build(library.parent) == library and library.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "compiler, options", [("gcc", ("-std=c99", "-Wpedantic")), ("g++", ("-x", "c++", "-std=c++11"))]
)
def test_the_header_compiles(library, tmp_path, compiler, options):
    text = '#include "cudnn.h"\nint main(void) { return cudnnGetVersion() == CUDNN_VERSION ? 0 : 1; }\n'
    assert run(compiled(library, tmp_path, text, compiler, *options)).returncode == 0


SOFTMAX = """
#include <math.h>
#include <stdio.h>
#include "cudnn.h"
#define CHECK(call) do { cudnnStatus_t s = (call); if (s) { printf("%s: %s\\n", #call, cudnnGetErrorString(s)); return 1; } } while (0)
void cudnnGetLastErrorString(char *, size_t);

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t desc;
  float x[6] = {0, 1, 2, 3, 4, 5}, y[6], one = 1, zero = 0, total = 0;
  char why[400];
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&desc));
  CHECK(cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 6, 1, 1));
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, desc, x, &zero, desc, y));
  for (int i = 0; i < 6; i++) total += y[i];
  if (fabsf(total - 1) > 1e-6f || !(y[5] > y[4])) return 2;
  if (cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, -1, 6, 1, 1) != CUDNN_STATUS_BAD_PARAM) return 3;
  cudnnGetLastErrorString(why, sizeof why);
  printf("%s\\n", why);
  if (cudnnCreateTensorDescriptor(NULL) != CUDNN_STATUS_BAD_PARAM) return 4;
  CHECK(cudnnDestroyTensorDescriptor(desc));
  if (cudnnDestroyTensorDescriptor(desc) == CUDNN_STATUS_SUCCESS) return 5;
  if (cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, desc, x, &zero, (cudnnTensorDescriptor_t)x, y)
      != CUDNN_STATUS_BAD_PARAM) return 6;
  CHECK(cudnnDestroy(handle));
  return 0;
}
"""


def test_a_program_in_c_computes_and_is_told_what_it_did_wrong(library, tmp_path):
    found = run(compiled(library, tmp_path, SOFTMAX, "gcc", "-lm"))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "cudnnSetTensor4dDescriptor: CUDNN_STATUS_BAD_PARAM: n -1, c 6" in found.stdout
    assert "[cudnnSetTensor4dDescriptor/c06]" in found.stdout


def test_what_does_not_exist_yet_says_so_once(library, tmp_path):
    text = """#include "cudnn.h"
int main(void) {
  cudnnHandle_t handle;
  if (cudnnCreate(&handle)) return 1;
  for (int i = 0; i < 2; i++) if (cudnnBackendFinalize(0) != CUDNN_STATUS_NOT_SUPPORTED) return 2;
  return 0;
}"""
    found = run(compiled(library, tmp_path, text))
    assert found.returncode == 0 and found.stderr.count("cudnnBackendFinalize") == 1


def test_python_that_cannot_start_is_no_success(library, tmp_path):
    text = '#include "cudnn.h"\nint main(void) { cudnnHandle_t h; return cudnnCreate(&h); }\n'
    program = compiled(library, tmp_path, text)
    assert run(program).returncode == 0
    assert run(program, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere").returncode != 0


def test_the_header_has_every_function_once():
    text = header()
    assert all(text.count(f" {name}(") == 1 for name in functions())


def test_sequence_data_and_attention_from_c(library, tmp_path):
    """A NULL fill and NULL dropouts are none, arrays come back as they were set, a float behind paddingFill is not touched."""
    text = """
    #include <cudnn.h>
    int main(void) {
        cudnnSeqDataDescriptor_t sequences;
        cudnnAttnDescriptor_t attention;
        int dims[4] = {4, 3, 1, 5}, lengths[3] = {4, 0, 2}, read[4] = {0}, back[3] = {0}, count, heads, longest;
        cudnnSeqDataAxis_t order[4] = {CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_VECT_DIM};
        cudnnSeqDataAxis_t axes[4];
        cudnnDataType_t type;
        float fill[2] = {7, 7};
        size_t size;
        double scaler;
        cudnnDropoutDescriptor_t dropout;
        if (cudnnCreateSeqDataDescriptor(&sequences) || cudnnCreateAttnDescriptor(&attention)) return 1;
        if (cudnnSetSeqDataDescriptor(sequences, CUDNN_DATA_FLOAT, 4, dims, order, 3, lengths, 0)) return 2;
        if (cudnnGetSeqDataDescriptor(sequences, &type, &count, 4, read, axes, &size, 3, back, fill)) return 3;
        if (count != 4 || size != 3 || read[3] != 5 || axes[0] != CUDNN_SEQDATA_BATCH_DIM || back[2] != 2) return 4;
        if (fill[0] != 7 || fill[1] != 7) return 5;
        if (cudnnSetSeqDataDescriptor(sequences, CUDNN_DATA_FLOAT, 4, dims, order, 3, lengths, fill) != CUDNN_STATUS_NOT_SUPPORTED) return 6;
        if (cudnnSetAttnDescriptor(attention, 0, 2, 0.5, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 0, 0,
                                   4, 4, 4, 0, 0, 0, 0, 8, 9, 3, 1)) return 7;
        if (cudnnGetAttnDescriptor(attention, 0, &heads, &scaler, 0, 0, 0, &dropout, 0, 0, 0, 0, 0, 0, 0, 0, 0, &longest, 0, 0)) return 8;
        if (heads != 2 || scaler != 0.5 || dropout != 0 || longest != 9) return 9;
        return cudnnDestroySeqDataDescriptor(sequences) || cudnnDestroyAttnDescriptor(attention) ? 10 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, ran.stderr


def test_ctc_loss_descriptors_from_c(library, tmp_path):
    """Three setters and three getters on one descriptor; outputs that are NULL are not written."""
    text = """
    #include <cudnn.h>
    int main(void) {
        cudnnCTCLossDescriptor_t loss;
        cudnnDataType_t type;
        cudnnLossNormalizationMode_t norm;
        cudnnNanPropagation_t nan;
        int longest = -1;
        if (cudnnCreateCTCLossDescriptor(0) != CUDNN_STATUS_BAD_PARAM || cudnnCreateCTCLossDescriptor(&loss)) return 1;
        if (cudnnGetCTCLossDescriptor_v8(loss, &type, &norm, &nan, &longest) || longest != 0) return 2;
        if (cudnnSetCTCLossDescriptor_v8(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_PROPAGATE_NAN, 41)) return 3;
        if (cudnnGetCTCLossDescriptor_v8(loss, &type, &norm, &nan, &longest)) return 4;
        if (type != CUDNN_DATA_FLOAT || norm != CUDNN_LOSS_NORMALIZATION_SOFTMAX || nan != CUDNN_PROPAGATE_NAN || longest != 41) return 5;
        if (cudnnSetCTCLossDescriptorEx(loss, CUDNN_DATA_DOUBLE, CUDNN_LOSS_NORMALIZATION_NONE, CUDNN_PROPAGATE_NAN)) return 6;
        if (cudnnGetCTCLossDescriptorEx(loss, &type, &norm, 0) || type != CUDNN_DATA_DOUBLE || norm != CUDNN_LOSS_NORMALIZATION_NONE) return 7;
        if (cudnnSetCTCLossDescriptor(loss, CUDNN_DATA_FLOAT) || cudnnGetCTCLossDescriptor(loss, &type) || type != CUDNN_DATA_FLOAT) return 8;
        if (cudnnGetCTCLossDescriptor_v8(loss, 0, 0, &nan, &longest) || nan != CUDNN_NOT_PROPAGATE_NAN || longest != 0) return 9;
        if (cudnnSetCTCLossDescriptor_v8(loss, CUDNN_DATA_FLOAT, (cudnnLossNormalizationMode_t)7, CUDNN_PROPAGATE_NAN, 1) != CUDNN_STATUS_BAD_PARAM) return 10;
        return cudnnDestroyCTCLossDescriptor(loss) || cudnnDestroyCTCLossDescriptor(0) ? 11 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, ran.stderr


def test_ctc_loss_from_c(library, tmp_path):
    """Lists whose lengths other arguments say; labels in device memory, which is the host's here; gradients that are NULL."""
    text = """
    #include <cudnn.h>
    #include <math.h>
    int main(void) {
        cudnnHandle_t handle;
        cudnnTensorDescriptor_t probs, gradient;
        cudnnCTCLossDescriptor_t loss;
        int dims[] = {3, 2, 3}, strides[] = {6, 3, 1}, labels[] = {1, 2, 2}, counts[] = {2, 1}, times[] = {3, 2};
        int beyond[] = {3, 4};
        float p[18], costs[2] = {-1, -1}, again[2] = {-1, -1}, gradients[18];
        size_t size = 0, size_8 = 0;
        char workspace[4096];
        for (int i = 0; i < 18; i++) p[i] = 1.0f / 3;
        if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&probs) || cudnnCreateTensorDescriptor(&gradient)) return 1;
        if (cudnnCreateCTCLossDescriptor(&loss) || cudnnSetTensorNdDescriptor(probs, CUDNN_DATA_FLOAT, 3, dims, strides)) return 2;
        if (cudnnSetTensorNdDescriptor(gradient, CUDNN_DATA_FLOAT, 3, dims, strides)) return 3;
        if (cudnnSetCTCLossDescriptor_v8(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_NONE, CUDNN_NOT_PROPAGATE_NAN, 2)) return 4;
        if (cudnnGetCTCLossWorkspaceSize(handle, probs, gradient, labels, counts, times, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, &size)) return 5;
        if (cudnnGetCTCLossWorkspaceSize_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, probs, gradient, &size_8)) return 6;
        if (!size || !size_8 || size > sizeof workspace || size_8 > sizeof workspace) return 7;
        if (cudnnCTCLoss(handle, probs, p, labels, counts, times, costs, gradient, gradients, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss,
                         workspace, size)) return 8;
        /* 12 in three steps: 112, 122, 012, 102, 120 of 27; 2 in two steps: 22, 02, 20 of 9 */
        if (fabs(costs[0] - log(27.0 / 5)) > 1e-5 || fabs(costs[1] - log(3.0)) > 1e-5) return 9;
        if (fabs(gradients[1] - (1.0 / 3 - 4.0 / 5)) > 1e-5 || gradients[15] != 0) return 10;
        if (cudnnCTCLoss_v8(handle, CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC, loss, probs, p, labels, counts, times, again, 0, 0, size_8,
                            workspace)) return 11;
        if (again[0] != costs[0] || again[1] != costs[1]) return 12;
        if (cudnnCTCLoss(handle, probs, p, labels, counts, beyond, costs, gradient, gradients, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss,
                         workspace, size) != CUDNN_STATUS_BAD_PARAM) return 13;
        if (cudnnCTCLoss(handle, probs, p, labels, counts, 0, costs, gradient, gradients, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss,
                         workspace, size) != CUDNN_STATUS_BAD_PARAM) return 14;
        return cudnnDestroy(handle) ? 15 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
