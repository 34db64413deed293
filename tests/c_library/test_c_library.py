"""Test that the C library is built once, called by C programs, and judged as any library is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dualdnn.api import cudnn
from dualdnn.api.abi.build import NAME, build
from dualdnn.api.abi.faces import face
from dualdnn.api.abi.header import header
from dualdnn.api.abi.names import FOLDERS, LINKS
from dualdnn.api.document import functions

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def library(built_library):
    return built_library()


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
    assert exported - {NAME} == {
        *functions(),
        *face(8).served,
        *face(8).absent,
        *face(8).sizes,
        "cudnnGetLastErrorString",
    }
    assert all(f"@{NAME}" in line or f"@@{NAME}" in line for line in listed.splitlines() if " T " in line)


def test_nothing_is_compiled_twice(library):
    before = library.stat().st_mtime_ns
    assert build(library.parent) == library and library.stat().st_mtime_ns == before


def test_a_library_that_is_in_use_is_not_overwritten(tmp_path, monkeypatch):
    """A program that has mapped the old file would read the bytes of the new one."""

    def compiled(_, tmpdir, target):
        assert Path(tmpdir).is_absolute()  # The linker runs in another folder.
        Path(tmpdir, target).write_bytes(b"new")

    def on_another_device(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    (tmp_path / NAME).write_bytes(b"in use")
    os.link(tmp_path / NAME, tmp_path / "kept")
    monkeypatch.setattr("cffi.FFI.compile", compiled)
    monkeypatch.setattr(os, "rename", on_another_device)  # Temporary files are on another device.
    monkeypatch.chdir(tmp_path)
    assert build(Path()).read_bytes() == b"new" and (tmp_path / "kept").read_bytes() == b"in use"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {NAME, f".{NAME}.key", "include", "kept", "pkgconfig", *FOLDERS, *LINKS[NAME]}
    for folder in FOLDERS:
        assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == dict.fromkeys(
            (NAME, *LINKS[NAME]), b"new"
        )


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


def test_a_missing_function_prints_one_message(library, tmp_path):
    missing = [
        f for f in functions().values() if not hasattr(cudnn, f.name) and all(p.memory == "host" for p in f.parameters)
    ]
    if not missing:
        pytest.skip("every function exists")
    name, zeros = missing[0].name, ", ".join("0" for _ in missing[0].parameters)
    text = f"""#include "cudnn.h"
int main(void) {{
  cudnnHandle_t handle;
  if (cudnnCreate(&handle)) return 1;
  for (int i = 0; i < 2; i++) if ({name}({zeros}) != CUDNN_STATUS_NOT_SUPPORTED) return 2;
  return 0;
}}"""
    found = run(compiled(library, tmp_path, text))
    assert found.returncode == 0 and found.stderr.count(name) == 1


def test_creation_fails_if_python_cannot_start(library, tmp_path):
    text = '#include "cudnn.h"\nint main(void) { cudnnHandle_t h; return cudnnCreate(&h); }\n'
    program = compiled(library, tmp_path, text)
    assert run(program).returncode == 0
    assert run(program, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere").returncode != 0


def test_the_header_has_every_function_once():
    text = header()
    assert all(text.count(f" {name}(") == 1 for name in functions())


def test_sequence_data_and_attention_from_c(library, tmp_path):
    """A NULL fill and NULL dropouts count as absent, arrays come back as they were set, and only paddingFill is written."""
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
    """Three setters and three getters work on one descriptor, and NULL outputs are not written."""
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
    """Other arguments give the lengths of lists, labels may be in device memory, and gradients may be NULL.

    Behind the last label nothing may be read.
    """
    text = """
    #define _GNU_SOURCE
    #include <cudnn.h>
    #include <math.h>
    #include <string.h>
    #include <sys/mman.h>
    enum { PAGE = 4096 };
    int main(void) {
        cudnnHandle_t handle;
        cudnnTensorDescriptor_t probs, gradient;
        cudnnCTCLossDescriptor_t loss;
        int dims[] = {3, 2, 3}, strides[] = {6, 3, 1}, listed[] = {1, 2, 2}, counts[] = {2, 1}, times[] = {3, 2};
        int beyond[] = {3, 4}, *labels;
        float p[18], costs[2] = {-1, -1}, again[2] = {-1, -1}, gradients[18];
        size_t size = 0, size_8 = 0;
        char workspace[4096];
        char *pages = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mprotect(pages + PAGE, PAGE, PROT_NONE)) return 16;
        labels = memcpy(pages + PAGE - sizeof listed, listed, sizeof listed);
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


def test_recurrent_networks_from_c(library, tmp_path):
    """Weight addresses, arrays of descriptors and fills of the data type work. NULL outputs are not written."""
    text = """
    #include <cudnn.h>
    #include <stdlib.h>
    int main(void) {
        cudnnHandle_t handle;
        cudnnRNNDescriptor_t network;
        cudnnRNNDataDescriptor_t sequences;
        cudnnTensorDescriptor_t matrix, bias, step, steps[3];
        cudnnFilterDescriptor_t weights, part;
        cudnnRNNMode_t cell;
        cudnnRNNDataLayout_t layout;
        cudnnDataType_t type;
        cudnnTensorFormat_t format;
        int lengths[2] = {3, 2}, dims[3] = {2, 5, 1}, strides[3] = {5, 1, 1}, hidden, rank, rows[3];
        size_t size, old, work, reserve;
        float fill = 2.5f, read = 0;
        char *space;
        void *m, *b;
        if (cudnnCreate(&handle) || cudnnCreateRNNDescriptor(&network) || cudnnCreateRNNDataDescriptor(&sequences)) return 1;
        if (cudnnCreateTensorDescriptor(&matrix) || cudnnCreateTensorDescriptor(&bias) || cudnnCreateTensorDescriptor(&step)) return 2;
        if (cudnnCreateFilterDescriptor(&weights) || cudnnCreateFilterDescriptor(&part)) return 3;
        if (cudnnSetRNNDescriptor_v8(network, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 5, 4, 4, 2, 0, 0)) return 4;
        if (cudnnGetRNNDescriptor_v8(network, 0, &cell, 0, 0, 0, 0, 0, 0, 0, &hidden, 0, 0, 0, 0) || cell != CUDNN_LSTM || hidden != 4) return 5;
        if (cudnnSetRNNDataDescriptor(sequences, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 3, 2, 5, lengths, &fill)) return 6;
        if (cudnnGetRNNDataDescriptor(sequences, &type, &layout, &rank, &hidden, &hidden, 2, lengths, &read)) return 7;
        if (read != 2.5f) return 8;
        if (cudnnGetRNNWeightSpaceSize(handle, network, &size) || !(space = malloc(size))) return 9;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 7, matrix, &m, bias, &b)) return 10;
        if ((char *)b - space != (long)size - 16 || (char *)m - space != 1024) return 11;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 8, matrix, &m, bias, &b) || m || b) return 12;
        if (cudnnGetRNNWeightParams(handle, network, 1, 64, space, 7, matrix, &m, bias, &b) != CUDNN_STATUS_INVALID_VALUE) return 13;
        m = b = 0;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 7, matrix, &m, 0, 0) || (char *)m - space != 1024) return 23;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 7, 0, 0, bias, &b) || (char *)b - space != (long)size - 16) return 24;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 7, matrix, 0, bias, &b) != CUDNN_STATUS_BAD_PARAM) return 25;
        if (cudnnGetRNNWeightParams(handle, network, 1, size, space, 7, matrix, &m, 0, &b) != CUDNN_STATUS_BAD_PARAM) return 26;
        if (cudnnGetRNNTempSpaceSizes(handle, network, CUDNN_FWD_MODE_TRAINING, sequences, 0, &reserve) || !reserve) return 14;
        if (cudnnSetTensorNdDescriptor(step, CUDNN_DATA_FLOAT, 3, dims, strides)) return 15;
        steps[0] = steps[1] = steps[2] = step;
        if (cudnnGetRNNWorkspaceSize(handle, network, 3, steps, &work) || !work) return 16;
        if (cudnnGetRNNParamsSize(handle, network, step, &old, CUDNN_DATA_FLOAT) || old != size) return 17;
        dims[0] = size / 4, dims[1] = 1;
        if (cudnnSetFilterNdDescriptor(weights, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, dims)) return 18;
        if (cudnnGetRNNLinLayerMatrixParams(handle, network, 0, step, weights, space, 4, part, &m)) return 19;
        if ((char *)m - space != 320 || cudnnGetFilterNdDescriptor(part, 3, &type, &format, &rank, rows) || rows[2] != 4) return 20;
        if (cudnnGetRNNLinLayerBiasParams(handle, network, 0, step, weights, space, 0, part, &b) || (char *)b - space != 1088) return 21;
        free(space);
        return cudnnDestroyRNNDescriptor(network) || cudnnDestroy(handle) ? 22 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text), DUALDNN_SHOW_ERRORS="1")
    assert ran.returncode == 0, ran.stderr


def test_searches_and_plans_of_recurrent_networks_from_c(library, tmp_path):
    """Searches fill performances that the program created, and plans are separate objects."""
    text = """#include "cudnn.h"
    #include <stdlib.h>
    #define CHECK(call) do { if (call) return __LINE__; } while (0)
    int main(void) {
        cudnnHandle_t handle;
        cudnnRNNDescriptor_t network;
        cudnnTensorDescriptor_t x, y, h, xs[2], ys[2];
        cudnnFilterDescriptor_t w;
        cudnnAlgorithmPerformance_t found[3], made;
        cudnnAlgorithmDescriptor_t algorithm;
        cudnnPersistentRNNPlan_t plan;
        cudnnStatus_t status;
        cudnnAlgorithm_t read;
        int three[] = {2, 4, 1}, steps[] = {4, 1, 1}, states[] = {1, 2, 4}, dense[] = {8, 4, 1}, count, most;
        float time;
        size_t size, work, memory;
        CHECK(cudnnCreate(&handle) || cudnnCreateRNNDescriptor(&network) || cudnnCreateFilterDescriptor(&w));
        CHECK(cudnnCreateTensorDescriptor(&x) || cudnnCreateTensorDescriptor(&y) || cudnnCreateTensorDescriptor(&h));
        CHECK(cudnnSetTensorNdDescriptor(x, CUDNN_DATA_FLOAT, 3, three, steps));
        CHECK(cudnnSetTensorNdDescriptor(y, CUDNN_DATA_FLOAT, 3, three, steps));
        CHECK(cudnnSetTensorNdDescriptor(h, CUDNN_DATA_FLOAT, 3, states, dense));
        xs[0] = xs[1] = x, ys[0] = ys[1] = y;
        CHECK(cudnnSetRNNDescriptor_v6(handle, network, 4, 1, 0, CUDNN_LINEAR_INPUT, CUDNN_UNIDIRECTIONAL, CUDNN_GRU,
                                       CUDNN_RNN_ALGO_STANDARD, CUDNN_DATA_FLOAT));
        CHECK(cudnnGetRNNParamsSize(handle, network, x, &size, CUDNN_DATA_FLOAT));
        int parameters[] = {(int)(size / 4), 1, 1};
        CHECK(cudnnSetFilterNdDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, parameters));
        CHECK(cudnnGetRNNWorkspaceSize(handle, network, 2, xs, &work));
        CHECK(cudnnGetRNNForwardInferenceAlgorithmMaxCount(handle, network, &most) || most != 3);
        CHECK(cudnnCreateAlgorithmPerformance(found, 3));
        made = found[0];
        void *space = malloc(work);
        CHECK(cudnnFindRNNForwardInferenceAlgorithmEx(handle, network, 2, xs, calloc(16, 4), h, 0, h, 0, w, calloc(size, 1), ys,
              calloc(16, 4), h, 0, h, 0, 1.0f, 3, &count, found, space, work));
        CHECK(count != 3 || found[0] != made);
        CHECK(cudnnGetAlgorithmPerformance(found[0], &algorithm, &status, &time, &memory) || status || time < 0 || memory > work);
        CHECK(cudnnGetAlgorithmDescriptor(algorithm, &read) || read.algo.RNNAlgo > CUDNN_RNN_ALGO_PERSIST_DYNAMIC);
        CHECK(cudnnSetRNNAlgorithmDescriptor(handle, network, algorithm));
        CHECK(cudnnDestroyAlgorithmPerformance(found, 3));
        CHECK(cudnnSetRNNDescriptor_v6(handle, network, 4, 1, 0, CUDNN_LINEAR_INPUT, CUDNN_UNIDIRECTIONAL, CUDNN_GRU,
                                       CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_DATA_FLOAT));
        CHECK(cudnnCreatePersistentRNNPlan(network, 2, CUDNN_DATA_FLOAT, &plan) || cudnnSetPersistentRNNPlan(network, plan));
        CHECK(cudnnBuildRNNDynamic(handle, network, 2) != CUDNN_STATUS_NOT_INITIALIZED);
        CHECK(cudnnDestroyPersistentRNNPlan(plan));
        CHECK(cudnnSetPersistentRNNPlan(network, plan) != CUDNN_STATUS_BAD_PARAM);
        return cudnnDestroyRNNDescriptor(network) || cudnnDestroy(handle);
    }
    """
    found = run(compiled(library, tmp_path, text))
    assert found.returncode == 0, f"line {found.returncode} {found.stdout} {found.stderr}"


def test_packs_of_fused_operations_from_c(library, tmp_path):
    """Void pointers carry attributes of every type. A getter returns a copy, and NULL leaves param unchanged."""
    text = """
    #include <cudnn.h>
    int main(void) {
        cudnnFusedOpsConstParamPack_t constants;
        cudnnFusedOpsVariantParamPack_t variants;
        cudnnTensorDescriptor_t x, copy;
        cudnnFilterDescriptor_t filter;
        cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL;
        cudnnFusedOpsPointerPlaceHolder_t promise = CUDNN_PTR_16B_ALIGNED;
        cudnnDataType_t type;
        int null = -1, n, c, h, w, i;
        size_t size = ((size_t)1 << 40) + 1;
        int64_t count = -7;
        double epsilon = 1e-3;
        void *pointer = &n, *kept = 0;
        if (cudnnCreateTensorDescriptor(&x) || cudnnCreateTensorDescriptor(&copy) || cudnnCreateFilterDescriptor(&filter)) return 1;
        if (cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2, 8, 5, 3)) return 2;
        if (cudnnCreateFusedOpsConstParamPack(&constants, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS)) return 3;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_XDESC, copy, &null) || null != 1) return 4;
        if (cudnnSetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_XDESC, x)) return 5;
        if (cudnnSetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_WDESC, x) != CUDNN_STATUS_BAD_PARAM) return 6;
        if (cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1)) return 7;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_XDESC, filter, &null) != CUDNN_STATUS_BAD_PARAM) return 8;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_XDESC, copy, &null) || null) return 9;
        if (cudnnGetTensor4dDescriptor(copy, &type, &n, &c, &h, &w, &i, &i, &i, &i) || type != CUDNN_DATA_HALF || w != 3) return 10;
        if (cudnnSetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_BN_MODE, &mode)) return 11;
        if (cudnnSetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_YSUM_PLACEHOLDER, &promise)) return 12;
        mode = CUDNN_BATCHNORM_PER_ACTIVATION, promise = CUDNN_PTR_NULL;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_BN_MODE, &mode, &null) || mode != CUDNN_BATCHNORM_SPATIAL) return 13;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_YSUM_PLACEHOLDER, &promise, &null) || promise != CUDNN_PTR_16B_ALIGNED) return 14;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_YSUM_PLACEHOLDER, 0, &null) != CUDNN_STATUS_BAD_PARAM) return 15;
        if (cudnnGetFusedOpsConstParamPackAttribute(constants, CUDNN_PARAM_YSUM_PLACEHOLDER, &promise, 0) != CUDNN_STATUS_BAD_PARAM) return 16;
        if (cudnnCreateFusedOpsVariantParamPack(&variants, CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING)) return 17;
        if (cudnnSetFusedOpsVariantParamPackAttribute(variants, CUDNN_PTR_YSUM, pointer)) return 18;
        if (cudnnSetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, &size)) return 19;
        if (cudnnSetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, &count)) return 20;
        if (cudnnSetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_DOUBLE_BN_EPSILON, &epsilon)) return 21;
        size = count = epsilon = 0;
        if (cudnnGetFusedOpsVariantParamPackAttribute(variants, CUDNN_PTR_YSUM, &kept) || kept != pointer) return 22;
        if (cudnnGetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, &size)
            || size != ((size_t)1 << 40) + 1) return 23;
        if (cudnnGetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, &count) || count != -7) return 24;
        if (cudnnGetFusedOpsVariantParamPackAttribute(variants, CUDNN_SCALAR_DOUBLE_BN_EPSILON, &epsilon) || epsilon != 1e-3) return 25;
        if (cudnnSetFusedOpsVariantParamPackAttribute(variants, CUDNN_PTR_YSUM, 0)) return 26;
        if (cudnnGetFusedOpsVariantParamPackAttribute(variants, CUDNN_PTR_YSUM, &kept) || kept) return 27;
        return cudnnDestroyFusedOpsConstParamPack(constants) || cudnnDestroyFusedOpsVariantParamPack(variants) ? 28 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


def test_backend_descriptors_from_c(library, tmp_path):
    """Elements have the C type of attributeType, counts need no memory, and getters fill descriptors that the program created."""
    text = """
    #include <cudnn.h>
    #include <stdbool.h>
    #define SET(d, name, type, count, values) if (cudnnBackendSetAttribute(d, name, type, count, values)) return __LINE__
    int main(void) {
        cudnnBackendDescriptor_t tensor, convolution, node, filled, other;
        cudnnDataType_t type = CUDNN_DATA_FLOAT;
        cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION, read_mode;
        int64_t dims[4] = {1, 1, 2, 2}, strides[4] = {4, 4, 2, 1}, uid = -((int64_t)1 << 62), alignment = 4, two = 2, ones[2] = {1, 1}, zeros[2] = {0, 0};
        int64_t count = -1, read[8] = {0}, one[4] = {1, 1, 1, 1};
        float alpha = 0.5f; double beta = 0.1, read_alpha = 0;
        bool is_virtual = true, read_virtual = false;
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor)) return 1;
        SET(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
        SET(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        SET(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        SET(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
        SET(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
        SET(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
        if (cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL) != CUDNN_STATUS_BAD_PARAM) return 2;
        if (cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, read) != CUDNN_STATUS_NOT_INITIALIZED || count != -1) return 3;
        if (cudnnBackendFinalize(tensor)) return 4;
        if (cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &count, NULL) || count != 4) return 5;
        if (cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL, read) || read[0] != uid) return 6;
        read[3] = 77;
        if (cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, &count, read) || count != 4 || read[2] != 2 || read[3] != 77) return 7;
        if (cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &count, &read_virtual) || !read_virtual) return 8;
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &convolution)) return 9;
        SET(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, zeros);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
        SET(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
        if (cudnnBackendFinalize(convolution)) return 10;
        if (cudnnBackendGetAttribute(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &count, &read_mode) || read_mode != mode) return 11;
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &other) || cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &filled)) return 12;
        uid = 'w';
        SET(other, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
        SET(other, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        SET(other, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        SET(other, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, one);
        SET(other, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, one);
        if (cudnnBackendFinalize(other)) return 13;
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &node)) return 14;
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor);
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor);
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution);
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);
        SET(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_DOUBLE, 1, &beta);
        if (cudnnBackendFinalize(node)) return 15;
        if (cudnnBackendGetAttribute(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, 1, NULL, &read_alpha) || read_alpha != 0.5) return 16;
        count = -1;
        if (cudnnBackendGetAttribute(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &convolution) != CUDNN_STATUS_BAD_PARAM || count != -1) return 17;
        if (cudnnBackendGetAttribute(node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &filled) || count != 1) return 18;
        if (cudnnBackendGetAttribute(filled, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL, read) || read[0] != 'w') return 19;
        if (cudnnBackendSetAttribute(filled, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) != CUDNN_STATUS_NOT_INITIALIZED) return 20;
        if (cudnnBackendInitialize(filled, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, sizeof filled)) return 21;
        if (cudnnBackendDestroyDescriptor(filled) || cudnnBackendFinalize(filled) != CUDNN_STATUS_BAD_PARAM) return 22;
        return 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


ATTENTION = """
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cudnn.h"
#define CHECK(call) do { cudnnStatus_t s = (call); if (s) { printf("%s: %s\\n", #call, cudnnGetErrorString(s)); return 1; } } while (0)

static cudnnSeqDataDescriptor_t data(int steps, int size) {
  cudnnSeqDataDescriptor_t made;
  int dims[CUDNN_SEQDATA_DIM_COUNT], lengths[1] = {steps};
  cudnnSeqDataAxis_t axes[] = {CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_VECT_DIM};
  dims[CUDNN_SEQDATA_TIME_DIM] = steps; dims[CUDNN_SEQDATA_BATCH_DIM] = 1;
  dims[CUDNN_SEQDATA_BEAM_DIM] = 1; dims[CUDNN_SEQDATA_VECT_DIM] = size;
  if (cudnnCreateSeqDataDescriptor(&made)) return 0;
  return cudnnSetSeqDataDescriptor(made, CUDNN_DATA_FLOAT, 4, dims, axes, 1, lengths, 0) ? 0 : made;
}

int main(void) {
  cudnnHandle_t handle;
  cudnnAttnDescriptor_t attention;
  cudnnTensorDescriptor_t tensor;
  size_t weights, work, reserve;
  int q_lengths[1] = {3}, k_lengths[1] = {2}, low[3] = {0, 0, 1}, high[3] = {0, 1, INT_MAX};
  float q[6] = {1, 2, 3, 4, 5, 6}, k[4] = {1, 0, 0, 1}, v[2] = {10, 20}, out[3] = {7, 7, 7};
  void *address, *space;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateAttnDescriptor(&attention));
  CHECK(cudnnCreateTensorDescriptor(&tensor));
  CHECK(cudnnSetAttnDescriptor(attention, CUDNN_ATTN_QUERYMAP_ALL_TO_ONE, 1, 1.0, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                               CUDNN_DEFAULT_MATH, 0, 0, 2, 2, 1, 0, 0, 1, 0, 3, 2, 1, 1));
  if (cudnnGetMultiHeadAttnBuffers(handle, attention, 0, &work, &reserve) != CUDNN_STATUS_BAD_PARAM) return 2;
  CHECK(cudnnGetMultiHeadAttnBuffers(handle, attention, &weights, &work, 0));
  CHECK(cudnnGetMultiHeadAttnBuffers(handle, attention, &weights, &work, &reserve));
  if (weights != 4 || !reserve) return 3;
  float *w = malloc(16);
  space = aligned_alloc(16, (work + 15) / 16 * 16);
  CHECK(cudnnGetMultiHeadAttnWeights(handle, attention, CUDNN_MH_ATTN_Q_WEIGHTS, weights, w, tensor, &address));
  if (address) return 4;
  CHECK(cudnnGetMultiHeadAttnWeights(handle, attention, CUDNN_MH_ATTN_V_WEIGHTS, weights, w, tensor, &address));
  if (address != w) return 5;
  w[0] = 2;
  cudnnSeqDataDescriptor_t qd = data(3, 2), kd = data(2, 2), vd = data(2, 1), od = data(3, 1);
  CHECK(cudnnMultiHeadAttnForward(handle, attention, 2, low, high, q_lengths, k_lengths, qd, q, 0, kd, k, vd, v, od, out,
                                  weights, w, work, space, 0, 0));
  if (out[0] != 7 || out[1] != 7 || out[2] != 40) return 6;
  CHECK(cudnnMultiHeadAttnForward(handle, attention, -1, low, high, q_lengths, k_lengths, qd, q, 0, kd, k, vd, v, od, out,
                                  weights, w, work, space, 0, 0));
  if (out[0] != 0 || out[1] != 20 || out[2] != 40) return 7;
  if (cudnnMultiHeadAttnForward(handle, attention, INT_MAX, low, high, q_lengths, k_lengths, qd, q, 0, kd, k, vd, v, od, out,
                                weights, w, work, space, 0, 0) != CUDNN_STATUS_BAD_PARAM) return 8;
  return 0;
}
"""


def test_attention_from_c(library, tmp_path):
    """There is a window for each time-step of the queries, and a call for one step reads only its own window."""
    found = run(compiled(library, tmp_path, ATTENTION, "gcc", "-lm"))
    assert found.returncode == 0, found.stdout + found.stderr


def test_algorithm_descriptors_from_c(library, tmp_path):
    """A union by value, arrays of created and destroyed objects, sized host memory and a generator's states work."""
    text = """
    #include <cudnn.h>
    #include <stdlib.h>
    int main(void) {
        cudnnHandle_t handle;
        cudnnAlgorithmDescriptor_t first, second, got;
        cudnnAlgorithmPerformance_t objects[3] = {0};
        cudnnDropoutDescriptor_t dropout;
        cudnnAlgorithm_t algorithm, read;
        cudnnStatus_t status;
        float time, probability;
        size_t size, memory, bytes;
        unsigned long long seed;
        char space[64] = {0};
        void *states, *held;
        if (cudnnCreate(&handle) || cudnnCreateAlgorithmDescriptor(&first) || cudnnCreateAlgorithmDescriptor(&second)) return 1;
        algorithm.algo.RNNAlgo = CUDNN_RNN_ALGO_PERSIST_DYNAMIC;
        if (cudnnSetAlgorithmDescriptor(first, algorithm) || cudnnGetAlgorithmDescriptor(first, &read)) return 2;
        if (read.algo.RNNAlgo != CUDNN_RNN_ALGO_PERSIST_DYNAMIC) return 3;
        if (cudnnGetAlgorithmSpaceSize(handle, first, &size) || size > 63) return 4;
        if (cudnnSaveAlgorithm(handle, first, space, size) || space[size]) return 5;
        if (cudnnSaveAlgorithm(handle, first, space, size - 1) != CUDNN_STATUS_BAD_PARAM) return 6;
        if (cudnnSaveAlgorithm(handle, first, 0, size) != CUDNN_STATUS_BAD_PARAM) return 7;
        if (cudnnRestoreAlgorithm(handle, space, sizeof space, second) || cudnnGetAlgorithmDescriptor(second, &read)) return 8;
        if (read.algo.RNNAlgo != CUDNN_RNN_ALGO_PERSIST_DYNAMIC) return 9;
        space[size - 1] ^= 1;
        if (cudnnRestoreAlgorithm(handle, space, size, second) != CUDNN_STATUS_BAD_PARAM) return 10;
        if (cudnnCreateAlgorithmPerformance(objects, 3) || !objects[0] || objects[1] == objects[2]) return 11;
        if (cudnnSetAlgorithmPerformance(objects[1], second, CUDNN_STATUS_NOT_SUPPORTED, 1.5f, 77)) return 12;
        if (cudnnGetAlgorithmPerformance(objects[1], &got, &status, &time, &memory)) return 13;
        if (got != second || status != CUDNN_STATUS_NOT_SUPPORTED || time != 1.5f || memory != 77) return 14;
        if (cudnnDestroyAlgorithmPerformance(objects, 3)) return 15;
        if (cudnnGetAlgorithmPerformance(objects[1], &got, &status, &time, &memory) != CUDNN_STATUS_BAD_PARAM) return 16;
        if (cudnnDestroyAlgorithmPerformance(0, 3) != CUDNN_STATUS_BAD_PARAM) return 17;
        if (cudnnOpsTrainVersionCheck() || cudnnAdvInferVersionCheck() || cudnnAdvTrainVersionCheck()) return 18;
        if (cudnnCnnInferVersionCheck() || cudnnCnnTrainVersionCheck() || cudnnGetMaxDeviceVersion() != 900) return 24;
        if (cudnnCreateDropoutDescriptor(&dropout) || cudnnDropoutGetStatesSize(handle, &bytes) || !(states = malloc(bytes))) return 19;
        if (cudnnSetDropoutDescriptor(dropout, handle, 0.25f, states, bytes, 1ull << 63)) return 20;
        if (cudnnGetDropoutDescriptor(dropout, handle, &probability, &held, &seed)) return 21;
        if (probability != 0.25f || held != states || seed != 1ull << 63 || *(unsigned long long *)states != seed) return 22;
        return cudnnDestroyDropoutDescriptor(dropout) || cudnnDestroy(handle) ? 23 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text), DUALDNN_SHOW_ERRORS="1")
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


def test_an_operation_graph_from_c(library, tmp_path):
    """Variant packs hold addresses, and the heuristics fill configurations that the program created."""
    text = """
    #include <cudnn.h>
    #define OK(call) if (call) return __LINE__
    #define SET(d, name, type, count, values) OK(cudnnBackendSetAttribute(d, name, type, count, values))
    static int tensor(cudnnBackendDescriptor_t *made, int64_t uid) {
        int64_t dims[3] = {1, 2, 3}, strides[3] = {6, 3, 1}, alignment = 4;
        cudnnDataType_t type = CUDNN_DATA_FLOAT;
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, made));
        SET(*made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
        SET(*made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
        SET(*made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
        SET(*made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 3, dims);
        SET(*made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, strides);
        return cudnnBackendFinalize(*made);
    }
    int main(void) {
        cudnnHandle_t handle;
        cudnnBackendDescriptor_t x, b, y, add, node, graph, heuristics, config, plan, pack;
        cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
        cudnnDataType_t type = CUDNN_DATA_FLOAT;
        cudnnBackendHeurMode_t heuristic = CUDNN_HEUR_MODE_INSTANT;
        float memory[3][6] = {{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}, {0}}, half = 0.5f;
        int64_t uids[3] = {5, -6, 7}, count, size = -1;
        void *pointers[3] = {memory[0], memory[1], memory[2]}, *workspace = 0;
        OK(cudnnCreate(&handle)); OK(tensor(&x, 5)); OK(tensor(&b, -6)); OK(tensor(&y, 7));
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &add));
        SET(add, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
        SET(add, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
        OK(cudnnBackendFinalize(add));
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &node));
        SET(node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &add);
        SET(node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
        SET(node, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b);
        SET(node, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
        SET(node, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &half);
        OK(cudnnBackendFinalize(node));
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
        SET(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        SET(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &node);
        OK(cudnnBackendFinalize(graph));
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
        SET(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        SET(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &heuristic);
        OK(cudnnBackendFinalize(heuristics));
        OK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL));
        if (count < 1) return 1;
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config));
        OK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config));
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
        SET(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
        SET(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
        OK(cudnnBackendFinalize(plan));
        OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, NULL, &size));
        if (size != 0) return 2;
        OK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
        SET(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uids);
        SET(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
        SET(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
        OK(cudnnBackendFinalize(pack));
        if (cudnnBackendExecute(handle, pack, plan) != CUDNN_STATUS_BAD_PARAM) return 3;
        OK(cudnnBackendExecute(handle, plan, pack));
        for (int i = 0; i < 6; i++) if (memory[2][i] != 6 * (i + 1)) return 4;
        return cudnnBackendExecute(0, plan, pack) == CUDNN_STATUS_SUCCESS;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


def test_fused_operations_from_c(library, tmp_path):
    """A plan of inference statistics runs on host memory, and refuses pointers that are not aligned as promised."""
    text = """
    #include <cudnn.h>
    #include <math.h>
    #define CONSTANT(label, value) if (cudnnSetFusedOpsConstParamPackAttribute(constants, label, value)) return __LINE__
    #define VARIANT(label, value) if (cudnnSetFusedOpsVariantParamPackAttribute(variants, label, value)) return __LINE__
    int main(void) {
        cudnnHandle_t handle;
        cudnnFusedOpsConstParamPack_t constants;
        cudnnFusedOpsVariantParamPack_t variants;
        cudnnFusedOpsPlan_t plan;
        cudnnTensorDescriptor_t vector;
        cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL;
        cudnnFusedOpsPointerPlaceHolder_t promise = CUDNN_PTR_ELEM_ALIGNED;
        cudnnFusedOps_t ops = CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE;
        float scale[2] = {3, -1}, bias[2] = {0.5f, 2}, mean[2] = {1, -2}, variance[2] = {4, 0.25f}, eq_scale[2] = {7, 7}, eq_bias[2] = {7, 7};
        double epsilon = 0;
        size_t size = 99;
        if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&vector)) return 1;
        if (cudnnSetTensor4dDescriptor(vector, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 1, 1)) return 2;
        if (cudnnCreateFusedOpsConstParamPack(&constants, ops) || cudnnCreateFusedOpsVariantParamPack(&variants, ops)) return 3;
        if (cudnnCreateFusedOpsPlan(&plan, ops)) return 4;
        CONSTANT(CUDNN_PARAM_BN_MODE, &mode);
        CONSTANT(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, vector);
        CONSTANT(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, vector);
        CONSTANT(CUDNN_PARAM_BN_SCALE_PLACEHOLDER, &promise);
        CONSTANT(CUDNN_PARAM_BN_BIAS_PLACEHOLDER, &promise);
        CONSTANT(CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, &promise);
        CONSTANT(CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER, &promise);
        CONSTANT(CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, &promise);
        CONSTANT(CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, &promise);
        if (cudnnFusedOpsExecute(handle, plan, variants) != CUDNN_STATUS_BAD_PARAM) return 5;
        if (cudnnMakeFusedOpsPlan(handle, plan, constants, 0) != CUDNN_STATUS_BAD_PARAM) return 6;
        if (cudnnMakeFusedOpsPlan(handle, plan, constants, &size) || size != 0) return 7;
        if (cudnnDestroyFusedOpsConstParamPack(constants) || cudnnDestroyTensorDescriptor(vector)) return 8;
        VARIANT(CUDNN_PTR_BN_SCALE, scale);
        VARIANT(CUDNN_PTR_BN_BIAS, bias);
        VARIANT(CUDNN_PTR_BN_RUNNING_MEAN, mean);
        VARIANT(CUDNN_PTR_BN_RUNNING_VAR, variance);
        VARIANT(CUDNN_PTR_BN_EQSCALE, eq_scale);
        VARIANT(CUDNN_SCALAR_DOUBLE_BN_EPSILON, &epsilon);
        if (cudnnFusedOpsExecute(handle, plan, variants) != CUDNN_STATUS_BAD_PARAM || eq_scale[0] != 7) return 9;
        VARIANT(CUDNN_PTR_BN_EQBIAS, eq_bias);
        if (cudnnFusedOpsExecute(handle, plan, variants)) return 10;
        if (fabsf(eq_scale[0] - 1.5f) > 1e-6f || fabsf(eq_scale[1] + 2) > 1e-6f) return 11;
        if (fabsf(eq_bias[0] + 1) > 1e-6f || fabsf(eq_bias[1] + 2) > 1e-6f) return 12;
        return cudnnDestroyFusedOpsPlan(plan) || cudnnDestroyFusedOpsPlan(0) || cudnnDestroyFusedOpsVariantParamPack(variants) ? 13 : 0;
    }
    """
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


WRONG = {
    "release": ({"DUALDNN_AS": "9.9"}, "9.9"),
    "backend": ({"DUALDNN_BACKEND": "other"}, "other"),
    "device": ({"DUALDNN_BACKEND": "accelerated", "DUALDNN_DEVICE": "other"}, "other"),
    "level": ({"DUALDNN_REPRODUCIBLE": "other"}, "other"),
    "level of the reference": ({"DUALDNN_REPRODUCIBLE": "batch"}, "promises 'run' alone"),
}


@pytest.mark.parametrize("given, named", WRONG.values(), ids=WRONG)
def test_a_wrong_environment_variable_is_named_on_the_standard_error(library, tmp_path, given, named):
    """cudnnCreate fails, and one line names the value. No level of reproducibility is ignored."""
    text = "#include <cudnn.h>\nint main(void) { cudnnHandle_t h; return cudnnCreate(&h) ? 0 : 1; }"
    ran = run(compiled(library, tmp_path, text), **given)
    assert ran.returncode == 0 and ran.stderr.count("\n") == 1 and named in ran.stderr, ran.stderr
