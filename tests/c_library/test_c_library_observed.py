"""Test that DUALDNN_BACKEND=observe:PATH judges the library of an unmodified program while it runs, here a copy of
ours with injected mistakes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from dualdnn.api.abi.build import NAME
from dualdnn.api.abi.c_types import border_type, result_type
from dualdnn.api.document import functions
from dualdnn.conformance.recorded import load_recording
from test_c_library import compiled, run

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

# function -> C code that runs after its call; a0, a1 ... are the arguments, and result is the status
MISTAKES = {
    "cudnnSoftmaxForward": "if (!result) ((float *)a8)[2] *= 1.001f;",
    "cudnnPoolingForward": "if (!result) ((float *)a7)[-1] = 0;",  # This writes before the output, and is not seen.
    "cudnnActivationForward": "if (!result) ((float *)a4)[0] = 7;",  # This changes the input.
    "cudnnSetTensorNdDescriptor": "if (a2 > 8) result = 0;",  # This accepts too many dimensions.
    "cudnnGetPooling2dForwardOutputDim": "if (!result) ++*(int *)a4;",  # This changes the height.
    "cudnnAddTensor": "if (!result) result = 9;",  # This answers NOT_SUPPORTED.
}

CLIENT = """
#include <cudnn.h>
#include <stdio.h>
#include <string.h>
#define CHECK(call) do { if (call) { printf("%s\\n", #call); return 1; } } while (0)
int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x, y, many;
  cudnnPoolingDescriptor_t window;
  cudnnActivationDescriptor_t relu;
  cudnnReduceTensorDescriptor_t sum;
  cudnnCTCLossDescriptor_t loss;
  float in[16], out[32], gradients[18], costs[2], one = 1, zero = 0;
  int n, c, h, w, dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, three[3] = {3, 2, 3}, strides[3] = {6, 3, 1};
  int labels[3] = {1, 2, 2}, counts[2] = {2, 1}, times[2] = {3, 2};
  size_t size;
  char workspace[4096];
  for (int i = 0; i < 16; i++) in[i] = (float)(i * 7 % 5) - 2;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x)); CHECK(cudnnCreateTensorDescriptor(&y)); CHECK(cudnnCreateTensorDescriptor(&many));
  CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 4, 4));
  if (!cudnnSetTensor4dDescriptor(many, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, -4, 4)) return 2;
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, x, in, &zero, x, out));
  CHECK(cudnnCreatePoolingDescriptor(&window));
  CHECK(cudnnSetPooling2dDescriptor(window, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  CHECK(cudnnGetPooling2dForwardOutputDim(window, x, &n, &c, &h, &w));
  CHECK(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 2, 2));
  CHECK(cudnnPoolingForward(handle, window, &one, x, in, &zero, y, out + 8));
  CHECK(cudnnCreateActivationDescriptor(&relu));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  CHECK(cudnnActivationForward(handle, relu, &one, x, in, &zero, x, out));
  cudnnAddTensor(handle, &one, y, in, &one, y, out);
  cudnnSetTensorNdDescriptor(many, CUDNN_DATA_FLOAT, 9, dims, dims);
  CHECK(cudnnCreateReduceTensorDescriptor(&sum));
  CHECK(cudnnSetReduceTensorDescriptor(sum, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_32BIT_INDICES));
  CHECK(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1));
  CHECK(cudnnGetReductionWorkspaceSize(handle, sum, x, y, &size));
  CHECK(cudnnReduceTensor(handle, sum, 0, 0, workspace, size, &one, x, in, &zero, y, out));
  CHECK(cudnnSetTensorNdDescriptor(x, CUDNN_DATA_FLOAT, 3, three, strides));
  CHECK(cudnnCreateCTCLossDescriptor(&loss));
  CHECK(cudnnSetCTCLossDescriptorEx(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_NOT_PROPAGATE_NAN));
  CHECK(cudnnGetCTCLossWorkspaceSize(handle, x, x, labels, counts, times, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, &size));
  memcpy(out, in, sizeof in);
  CHECK(cudnnCTCLoss(handle, x, out, labels, counts, times, costs, x, gradients, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, workspace, size));
  CHECK(cudnnDestroyTensorDescriptor(x)); CHECK(cudnnDestroyTensorDescriptor(y));
  CHECK(cudnnDestroy(handle));
  return 0;
}
"""


def broken_copy(library, folder, mistakes):
    """Build a library that passes every function of the document on to a copy of ours, apart from the mistakes."""
    copy = folder / "copy" / NAME
    copy.parent.mkdir()
    shutil.copy(library, copy)
    lines = ["#define _GNU_SOURCE", "#include <dlfcn.h>", "#include <stddef.h>", "#include <stdint.h>"]
    lines.append(
        "static void *found(const char *name) { static void *copy; if (!copy) copy = dlopen("
        f'"{copy}", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND); return dlsym(copy, name); }}'
    )
    for function in functions().values():
        kinds = [border_type(parameter) for parameter in function.parameters]
        declared = ", ".join(f"{kind} a{i}" for i, kind in enumerate(kinds)) or "void"
        passed = ", ".join(f"a{i}" for i in range(len(kinds)))
        result, name = result_type(function), function.name
        lines.append(
            f'{result} {name}({declared}) {{ {result} (*f)({", ".join(kinds) or "void"}) = found("{name}");'
            f" {result} result = f({passed}); {mistakes.get(name, '')} return result; }}"
        )
    source, made = folder / "broken.c", folder / "libbroken.so"
    source.write_text("\n".join(lines))
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", str(source), "-o", str(made), "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def library(built_library):
    return built_library(runtime=True)


def test_a_library_that_is_right(library, tmp_path):
    """A right library has no findings, and the recording of its calls agrees with the reference."""
    plain = broken_copy(library, tmp_path, {})
    recording = tmp_path / "calls.npz"
    program = compiled(library, tmp_path, CLIENT)
    ran = run(program, DUALDNN_BACKEND=f"observe:{plain}", DUALDNN_RECORD=str(recording))
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    assert "6 judged, 0 wrong, 0 other statuses, 0 other results" in ran.stderr, ran.stderr
    assert "not judged" not in ran.stderr
    names = [record.function for record in load_recording(recording).records]
    assert {"cudnnSoftmaxForward", "cudnnCTCLoss", "cudnnSetPooling2dDescriptor", "cudnnReduceTensor"} <= set(names)
    command = [sys.executable, "-m", "dualdnn.conformance", "conformance", "--subject", f"recorded:{recording}"]
    judged = subprocess.run(
        [*command, "--jobs", "1", "--out", str(tmp_path / "report")], capture_output=True, text=True
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_a_library_that_is_wrong(library, tmp_path):
    """Each mistake is found at the call that made it, and the program goes on with the library's answers."""
    broken = broken_copy(library, tmp_path, MISTAKES)
    ran = run(compiled(library, tmp_path, CLIENT), DUALDNN_BACKEND=f"observe:{broken}")
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    said = ran.stderr
    assert "5 judged, 2 wrong, 2 other statuses, 1 other results" in said, said
    assert "wrong: cudnnSoftmaxForward: 1 of 16 elements are wrong" in said and "y[0, 0, 0, 2]" in said
    assert "wrong: cudnnActivationForward: x:" in said
    assert "status: cudnnAddTensor: NOT_SUPPORTED" in said
    assert "status: cudnnSetTensorNdDescriptor: SUCCESS, cudnnSetTensorNdDescriptor: CUDNN_STATUS_" in said
    assert "result: cudnnGetPooling2dForwardOutputDim: outH is 3, by the document 2" in said


def test_a_library_that_is_not_there(library, tmp_path):
    program = compiled(library, tmp_path, CLIENT)
    ran = run(program, DUALDNN_BACKEND="observe:/nowhere/libcudnn.so.8")
    assert ran.returncode == 1 and "/nowhere/libcudnn.so.8" in ran.stderr


DROPOUT = """
#include <cudnn.h>
#include <stdlib.h>
int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x;
  cudnnDropoutDescriptor_t dropout;
  float in[40], out[40], back[40];
  size_t size, mask;
  void *states, *reserve;
  for (int i = 0; i < 40; i++) in[i] = 1 + (float)i;
  if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&x) || cudnnCreateDropoutDescriptor(&dropout)) return 1;
  if (cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 4, 5)) return 2;
  if (cudnnDropoutGetStatesSize(handle, &size) || !(states = malloc(size))) return 3;
  if (cudnnDropoutGetReserveSpaceSize(x, &mask) || !(reserve = malloc(mask))) return 4;
  if (cudnnSetDropoutDescriptor(dropout, handle, 0.5f, states, size, 77)) return 5;
  if (cudnnDropoutForward(handle, dropout, x, in, x, out, reserve, mask)) return 6;
  if (cudnnDropoutBackward(handle, dropout, x, in, x, back, reserve, mask)) return 7;
  return 0;
}
"""


def test_random_numbers_are_the_library_s_own(library, tmp_path):
    """A forward call of dropout may draw any mask. The gradient must use the mask in the reserve space."""
    other = {
        "cudnnDropoutForward": "if (!result) ((float *)a5)[0] = 9;",
        "cudnnDropoutBackward": "((float *)a5)[7] += 1;",
    }
    broken = broken_copy(library, tmp_path, other)
    ran = run(compiled(library, tmp_path, DROPOUT), DUALDNN_BACKEND=f"observe:{broken}")
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    assert "1 wrong, 0 other statuses, 0 other results" in ran.stderr, ran.stderr
    assert "wrong: cudnnDropoutBackward: 1 of 40 elements are wrong" in ran.stderr, ran.stderr
    assert "cudnnDropoutForward: its random numbers are the library's own" in ran.stderr


ON_THE_DEVICE = """
#include <cudnn.h>
#include <stdio.h>
int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int), cudaFree(void *);
#define CHECK(call) do { if (call) { printf("%s\\n", #call); return 1; } } while (0)
int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t probs;
  cudnnCTCLossDescriptor_t loss;
  int dims[3] = {4, 2, 3}, strides[3] = {6, 3, 1}, lists[7] = {1, 2, 2, 2, 1, 4, 3};
  float p[24], *device, *work, costs[2];
  int *listed;
  size_t size;
  for (int i = 0; i < 24; i++) p[i] = (float)(i * 5 % 7) / 3;
  CHECK(cudaMalloc((void **)&device, 50 * sizeof(float))); CHECK(cudaMalloc((void **)&listed, sizeof lists));
  CHECK(cudaMemcpy(device, p, sizeof p, 1)); CHECK(cudaMemcpy(listed, lists, sizeof lists, 1));
  CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateTensorDescriptor(&probs)); CHECK(cudnnCreateCTCLossDescriptor(&loss));
  CHECK(cudnnSetTensorNdDescriptor(probs, CUDNN_DATA_FLOAT, 3, dims, strides));
  CHECK(cudnnSetCTCLossDescriptor_v8(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_NOT_PROPAGATE_NAN, 2));
  CHECK(cudnnGetCTCLossWorkspaceSize_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, probs, probs, &size));
  CHECK(cudaMalloc((void **)&work, size));
  for (int i = 0; i < 2; i++)
    CHECK(cudnnCTCLoss_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, loss, probs, device, listed, listed + 3, listed + 5, device + 48, probs,
                          device + 24, size, work));
  CHECK(cudaMemcpy(costs, device + 48, sizeof costs, 2));
  if (!(costs[0] > 0 && costs[1] > 0)) return 2;
  CHECK(cudaFree(device));
  CHECK(cudnnDestroy(handle));
  return 0;
}
"""


def test_memory_of_a_device(library, tmp_path):
    """The driver tells where allocations end. Lists of labels have the lengths that arguments give, and device memory is read."""
    broken = broken_copy(library, tmp_path, {"cudnnCTCLoss_v8": "if (!result) ((float *)a8)[1] += 0.001f;"})
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(ON_THE_DEVICE)
    command = ["gcc", f"-I{library.parent / 'include'}", str(source), "-o", str(program), f"-L{library.parent}"]
    subprocess.run([*command, f"-l:{NAME}", "-l:libcudart.so.12"], check=True)
    ran = run(program, LD_LIBRARY_PATH=str(library.parent), DUALDNN_BACKEND=f"observe:{broken}")
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    assert "2 judged, 2 wrong, 0 other statuses" in ran.stderr, ran.stderr
    assert "cudnnCTCLoss_v8: 1 of 26 elements are wrong, the worst: costs[1]" in ran.stderr


TRAINING_STEP = """
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(call) do { int s = (call); if (s) { printf("%s: %d\\n", #call, s); return 1; } } while (0)
enum { N = 8, C = 16, S = 32, COUNT = N * C * S * S };
static float *filled(int n) { float *p = malloc(n * 4); for (int i = 0; i < n; i++) p[i] = rand() / (float)RAND_MAX - 0.5f; return p; }
int main(void) {
  cudnnHandle_t handle; cudnnTensorDescriptor_t x, p, b; cudnnFilterDescriptor_t f; cudnnConvolutionDescriptor_t d;
  cudnnPoolingDescriptor_t q; cudnnActivationDescriptor_t relu; float one = 1, zero = 0;
  float *X = filled(COUNT), *Y = filled(COUNT), *Z = filled(COUNT), *W = filled(C * C * 9), *P = filled(COUNT / 4), *G = filled(COUNT / 4);
  float *scale = filled(C), *bias = filled(C), *mean = filled(C), *inverse = filled(C), *running = filled(C), *variance = filled(C);
  for (int i = 0; i < C; i++) variance[i] = 1;
  CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateTensorDescriptor(&x)); CHECK(cudnnCreateTensorDescriptor(&p)); CHECK(cudnnCreateTensorDescriptor(&b));
  CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, S, S));
  CHECK(cudnnSetTensor4dDescriptor(p, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, S / 2, S / 2));
  CHECK(cudnnSetTensor4dDescriptor(b, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, C, 1, 1));
  CHECK(cudnnCreateFilterDescriptor(&f)); CHECK(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, C, C, 3, 3));
  CHECK(cudnnCreateConvolutionDescriptor(&d));
  CHECK(cudnnSetConvolution2dDescriptor(d, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnCreatePoolingDescriptor(&q));
  CHECK(cudnnSetPooling2dDescriptor(q, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  CHECK(cudnnCreateActivationDescriptor(&relu)); CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  for (int step = 0; step < 3; step++) {
    CHECK(cudnnConvolutionForward(handle, &one, x, X, f, W, d, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &zero, x, Y));
    CHECK(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, x, Y, x, Z, b, scale, bias, 0.1, running, variance,
                                                 1e-5, mean, inverse));
    CHECK(cudnnActivationForward(handle, relu, &one, x, Z, &zero, x, Z));
    CHECK(cudnnPoolingForward(handle, q, &one, x, Z, &zero, p, P));
    CHECK(cudnnPoolingBackward(handle, q, &one, p, P, p, G, x, Z, &zero, x, Y));
    CHECK(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero, x, X, x, Y, x, Z, b, scale, running, bias,
                                          1e-5, mean, inverse));
    CHECK(cudnnConvolutionBackwardBias(handle, &one, x, Y, &zero, b, bias));
    CHECK(cudnnConvolutionBackwardData(handle, &one, f, W, x, Y, d, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, NULL, 0, &zero, x, Z));
    CHECK(cudnnConvolutionBackwardFilter(handle, &one, x, X, x, Y, d, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, NULL, 0, &zero, f, W));
  }
  return 0;
}
"""
# This tile of one image is wrong: 8 of 16 channels, 16 x 16 positions, 2048 of 131072 elements.
TILE = (
    "if (!result) for (int k = 0; k < 8; k++) for (int h = 0; h < 16; h++) for (int w = 0; w < 16; w++)"
    " ((float *)a12)[(3 * 16 + k) * 1024 + (h + 16) * 32 + w] *= 1.01f;"
)


def test_samples_of_a_training_step(library, tmp_path):
    """A sample of every call is judged, and a wrong tile is found."""
    program = compiled(library, tmp_path, TRAINING_STEP)
    plain = broken_copy(library, tmp_path, {})
    ran = run(
        program,
        DUALDNN_BACKEND=f"observe:{plain}",
        DUALDNN_OBSERVE_OUT=str(tmp_path / "right"),
        DUALDNN_OBSERVE_SPOTS="60",
    )
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    assert "27 judged, 0 wrong" in ran.stderr and "not judged" not in ran.stderr, ran.stderr
    assert ran.stderr.count("  sampled: ") == 9
    (tmp_path / "tile").mkdir()
    broken = broken_copy(library, tmp_path / "tile", {"cudnnConvolutionForward": TILE})
    ran = run(
        program,
        DUALDNN_BACKEND=f"observe:{broken}",
        DUALDNN_OBSERVE_OUT=str(tmp_path / "wrong"),
        DUALDNN_OBSERVE_EVERY="1",
    )
    assert "wrong: cudnnConvolutionForward:" in ran.stderr and 'dualdnn replay "ConvolutionForward(' in ran.stderr, (
        ran.stderr
    )
    assert json.loads((tmp_path / "wrong" / "observed.json").read_text())["wrong"]


RECURRENT_STEPS = """
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(call) do { int s = (call); if (s) { printf("%s: %d\\n", #call, s); return 1; } } while (0)
enum { T = 10, N = 64, IN = 400, H = 8, A = 5 };
static float *filled(int n) { float *p = malloc(n * 4); for (int i = 0; i < n; i++) p[i] = rand() / (float)RAND_MAX - 0.5f; return p; }
int main(void) {
  cudnnHandle_t handle; cudnnRNNDescriptor_t rnn; cudnnRNNDataDescriptor_t x, y; cudnnTensorDescriptor_t h; cudnnDropoutDescriptor_t none;
  int lengths[N], dims[3] = {2, N, H}, strides[3] = {N * H, H, 1}, *device = malloc(N * 4); size_t weights, work, kept; float fill = 0;
  float *X = filled(T * N * IN), *Y = filled(T * N * 2 * H), *DY = filled(T * N * 2 * H), *DX = filled(T * N * IN);
  float *hx = filled(2 * N * H), *cx = filled(2 * N * H), *hy = filled(2 * N * H), *cy = filled(2 * N * H), *dh = filled(2 * N * H), *dc = filled(2 * N * H);
  for (int i = 0; i < N; i++) lengths[i] = device[i] = T - i % 4;
  CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateRNNDescriptor(&rnn)); CHECK(cudnnCreateRNNDataDescriptor(&x)); CHECK(cudnnCreateRNNDataDescriptor(&y));
  CHECK(cudnnCreateTensorDescriptor(&h)); CHECK(cudnnCreateDropoutDescriptor(&none));
  CHECK(cudnnSetDropoutDescriptor(none, handle, 0, NULL, 0, 0));
  CHECK(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_BIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                                 CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, IN, H, H, 1, none, CUDNN_RNN_PADDED_IO_ENABLED));
  CHECK(cudnnSetRNNDataDescriptor(x, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, N, IN, lengths, &fill));
  CHECK(cudnnSetRNNDataDescriptor(y, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T, N, 2 * H, lengths, &fill));
  CHECK(cudnnSetTensorNdDescriptor(h, CUDNN_DATA_FLOAT, 3, dims, strides));
  CHECK(cudnnGetRNNWeightSpaceSize(handle, rnn, &weights));
  CHECK(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_TRAINING, x, &work, &kept));
  float *W = filled(weights / 4), *DW = filled(weights / 4); void *space = malloc(work), *reserve = malloc(kept);
  for (int step = 0; step < 8; step++) {
    CHECK(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_TRAINING, device, x, X, y, Y, h, hx, hy, h, cx, cy, weights, W, work, space, kept, reserve));
    CHECK(cudnnRNNBackwardData_v8(handle, rnn, device, y, Y, DY, x, DX, h, hx, hy, dh, h, cx, cy, dc, weights, W, work, space, kept, reserve));
    CHECK(cudnnRNNBackwardWeights_v8(handle, rnn, CUDNN_WGRAD_MODE_ADD, device, x, X, h, hx, y, Y, weights, DW, work, space, kept, reserve));
  }
  return 0;
}
"""


def test_entries_of_a_recurrent_training_step(library, tmp_path):
    """Some sequences of each chain are judged, forward and backward, and the eighth chain whole, with weight gradients."""
    program = compiled(library, tmp_path, RECURRENT_STEPS)
    plain = broken_copy(library, tmp_path, {})
    ran = run(program, DUALDNN_BACKEND=f"observe:{plain}")
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
    assert "17 judged, 0 wrong, 0 other statuses" in ran.stderr, ran.stderr
    assert (
        "cudnnRNNBackwardWeights_v8: it adds up the whole batch, of which reserveSpace was followed for some entries (7 calls)"
        in ran.stderr
    )
    mistakes = {
        "cudnnRNNForward": "for (int n = 0; n < 64; n += 8) ((float *)a7)[(5 * 64 + n) * 16 + 3] += 0.001f;",
        "cudnnRNNBackwardWeights_v8": "((float *)a11)[7] += 10;",
    }
    (tmp_path / "wrong").mkdir()
    broken = broken_copy(library, tmp_path / "wrong", mistakes)
    ran = run(program, DUALDNN_BACKEND=f"observe:{broken}")
    assert "wrong: cudnnRNNForward: of entries" in ran.stderr and "elements are wrong" in ran.stderr, ran.stderr
    assert "wrong: cudnnRNNBackwardWeights_v8: 1 of" in ran.stderr, ran.stderr


# Each step sets descriptors that it has just created, as PyTorch does. One descriptor keeps its address, and gets other
# dims every 100 steps. A second tanh of the same numbers would be noticed.
SHORT_STEPS = """
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(call) do { int s = (call); if (s) { printf("%s: %d\\n", #call, s); return 1; } } while (0)
int main(void) {
  cudnnHandle_t handle; cudnnTensorDescriptor_t kept, made; cudnnFilterDescriptor_t f; cudnnConvolutionDescriptor_t d;
  cudnnActivationDescriptor_t tanh; float x[400], y[400], w[9], one = 1, zero = 0;
  for (int i = 0; i < 400; i++) x[i] = (float)(i * 7 % 11) - 5;
  for (int i = 0; i < 9; i++) w[i] = (float)i - 4;
  CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateTensorDescriptor(&kept)); CHECK(cudnnCreateActivationDescriptor(&tanh));
  CHECK(cudnnSetActivationDescriptor(tanh, CUDNN_ACTIVATION_TANH, CUDNN_PROPAGATE_NAN, 0));
  for (int step = 0; step < 3000; step++) {
    int n = 1 + step / 100 % 3, c = 2 - step / 100 % 2;
    if (step % 100 == 0) CHECK(cudnnSetTensor4dDescriptor(kept, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, 5, 6));
    CHECK(cudnnCreateTensorDescriptor(&made)); CHECK(cudnnCreateFilterDescriptor(&f)); CHECK(cudnnCreateConvolutionDescriptor(&d));
    CHECK(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n * c, 1, 5, 6));
    CHECK(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 3, 3));
    CHECK(cudnnSetConvolution2dDescriptor(d, 1, 1, 1, 1, 1, 1, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT));
    CHECK(cudnnConvolutionForward(handle, &one, made, x, f, w, d, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &zero, made, y));
    CHECK(cudnnActivationForward(handle, tanh, &one, kept, y, &zero, kept, y));
    CHECK(cudnnDestroyTensorDescriptor(made)); CHECK(cudnnDestroyFilterDescriptor(f)); CHECK(cudnnDestroyConvolutionDescriptor(d));
  }
  return 0;
}
"""
CALLS = 4 + 3000 * 11 + 30


def test_a_budget_passes_calls_on_without_python(library, tmp_path):
    """Calls beyond the budget reach the library at once, which is asked for the descriptors that were set meanwhile."""
    program = compiled(library, tmp_path, SHORT_STEPS)
    mistake = {"cudnnActivationForward": "if (!result) ((float *)a7)[29] -= 1;"}
    for name, mistakes in (("right", {}), ("wrong", mistake)):
        (tmp_path / name).mkdir()
        observed = broken_copy(library, tmp_path / name, mistakes)
        ran = run(
            program,
            DUALDNN_BACKEND=f"observe:{observed}",
            DUALDNN_OBSERVE_BUDGET="0.2",
            DUALDNN_OBSERVE_OUT=str(tmp_path / name),
        )
        assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
        found = json.loads((tmp_path / name / "observed.json").read_text())
        assert sum(found["calls"].values()) == CALLS and not found["status"] and not found["result"]
        assert found["not_judged"]["passed on unseen: judging takes 20% of the time"] > CALLS / 4
        assert {row["function"] for row in found["configurations"] if row["judged"]} == {
            "cudnnConvolutionForward",
            "cudnnActivationForward",
        }
        assert len({row["operation"] for row in found["configurations"] if row["judged"]}) > 3
        assert bool(found["wrong"]) == (name == "wrong") and all(
            "cudnnActivationForward" in each["text"] for each in found["wrong"]
        )
