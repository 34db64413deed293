"""Test the generated ctypes binding with a small C library written for these tests, and with NVIDIA's library."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dualdnn.api.abi.faces import face
from dualdnn.api.enumerations import (
    CUDNN_SEV_INFO_EN,
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnPoolingMode_t,
    cudnnSeverity_t,
    cudnnStatus_t,
    cudnnTensorFormat_t,
    libraryPropertyType,
)
from dualdnn.api.status import CudnnError
from dualdnn.conformance.subjects.binding import arithmetic
from dualdnn.conformance.subjects.binding.functions import function_table, slot_of
from dualdnn.conformance.subjects.binding.objects import Library
from dualdnn.conformance.subjects.binding.queries import failure_text, size_in_bytes
from dualdnn.conformance.subjects.binding.slots import Scaling, Slot
from dualdnn.conformance.subjects.binding.special import SPECIAL_SLOTS
from dualdnn.conformance.subjects.binding.tables import (
    INPUT_LENGTHS,
    NULL_CRASHES,
    NULL_CRASHES_BEFORE_9,
    NULL_CRASHES_SINCE_9,
    NULL_FAULTS,
    OUTPUT_LENGTHS,
    vendor_null_crashes,
)
from dualdnn.conformance.subjects.binding.types import NothingCreated, documented_status
from dualdnn.conformance.subjects.library import (
    Crashes,
    LibraryError,
    LibrarySubject,
    NotExported,
    NotExpressible,
    find_vendor_library,
)

FLOAT, DOUBLE, HALF = (cudnnDataType_t[f"CUDNN_DATA_{name}"] for name in ("FLOAT", "DOUBLE", "HALF"))
NCHW = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
NAN = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
MAX = cudnnPoolingMode_t.CUDNN_POOLING_MAX
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU

# This small cuDNN records the arguments of each call, as a C compiler passes them.
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type, rank, dims[8]; } *Tensor;
typedef struct { int algo, status; float time; size_t memory; int determinism, math, reserved[3]; } Row;
typedef struct { unsigned version; int status; unsigned sec, usec, delta; void *handle, *stream;
                 unsigned long long pid, tid; int device, reserved[15]; } Debug;
typedef void (*Callback)(int, void *, const Debug *, const char *);

static char text[4096];
static int next_status;
const char *last_call(void) { return text; }
void fail_next(int status) { next_status = status; }
static int result(void) { int status = next_status; next_status = 0; return status; }

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) {
    static char s[40];
    sprintf(s, "status %d", status);
    return status == 771 ? "\xff\xfe" : status == 772 ? 0 : s;
}
int cudnnCreateTensorDescriptor(Tensor *t) { *t = calloc(1, sizeof **t); return result(); }
int cudnnDestroyTensorDescriptor(Tensor t) { sprintf(text, "destroy %d", t != NULL); return result(); }
int cudnnCreateFilterDescriptor(Tensor *t) { return cudnnCreateTensorDescriptor(t); }
int cudnnCreateRNNDescriptor(void **t) { *t = malloc(1); return 0; }
int cudnnCreateDropoutDescriptor(void **t) { *t = malloc(1); return 0; }
int cudnnCreateActivationDescriptor(void **t) { *t = malloc(1); return 0; }
int cudnnCreatePoolingDescriptor(void **t) { *t = malloc(1); return 0; }
int cudnnCreateOpTensorDescriptor(void **t) { return 0; }
int cudnnCreateAttnDescriptor(void **t) { return 0; }
int cudnnBackendCreateDescriptor(int kind, void **t) { return 0; }
int cudnnCreateRNNDataDescriptor(void **t) { *t = malloc(1); return 0; }
int cudnnCreateAlgorithmPerformance(void **t, int n) {
    for (int i = 0; i < n && i < 5; i++) t[i] = malloc(1);
    return result();
}
int cudnnDestroyAlgorithmPerformance(void **t, int n) { sprintf(text, "%d %d", t[0] != t[1], n); return 0; }
int cudnnSetTensor4dDescriptor(Tensor t, int format, int type, int n, int c, int h, int w) {
    t->type = type;
    sprintf(text, "%d %d %d %d %d %d", format, type, n, c, h, w);
    return result();
}
int cudnnSetFilter4dDescriptor(Tensor t, int type, int format, int k, int c, int h, int w) {
    t->type = type;
    return 0;
}
int cudnnSetTensorNdDescriptor(Tensor t, int type, int rank, const int dims[], const int strides[]) {
    char *p = text + sprintf(text, "%d %d", type, rank);
    for (int i = 0; i < rank; i++) p += sprintf(p, " %d/%d", dims[i], strides[i]);
    t->type = type; t->rank = rank;
    memcpy(t->dims, dims, rank * sizeof(int));
    return result();
}
int cudnnGetTensorNdDescriptor(Tensor t, int asked, int *type, int *rank, int dims[], int strides[]) {
    *type = t->type; *rank = t->rank;
    for (int i = 0; i < asked && i < t->rank; i++) { dims[i] = t->dims[i]; strides[i] = -i; }
    return result();
}
int cudnnGetFilterNdDescriptor(Tensor t, int asked, int *type, int *format, int *rank, int dims[]) {
    *type = t->type; *format = 0; *rank = 0;
    return 0;
}
int cudnnSetActivationDescriptor(void *a, int mode, int nan, double coef) {
    sprintf(text, "%d %d %a", mode, nan, coef);
    return result();
}
int cudnnGetPooling2dForwardOutputDim(void *p, Tensor t, int *n, int *c, int *h, int *w) {
    *n = 2; *c = 3; *h = -4; *w = 5;
    return result();
}
int cudnnRestoreDropoutDescriptor(void *d, void *h, float dropout, void *states, size_t size,
                                  unsigned long long seed) {
    sprintf(text, "%d %a %d %zu %llx", h != NULL, dropout, states != NULL, size, seed);
    return result();
}
int cudnnScaleTensor(void *handle, Tensor y, void *data, const void *alpha) {
    if (y->type == 1) sprintf(text, "double %a", *(const double *)alpha);
    else sprintf(text, "float %a", *(const float *)alpha);
    return result();
}
int cudnnTransformFilter(void *h, void *t, const void *alpha, Tensor s, void *sd, const void *beta, Tensor d,
                         void *dd) {
    if (d->type == 1) sprintf(text, "%a %a", *(const double *)alpha, *(const double *)beta);
    else sprintf(text, "%a %a", *(const float *)alpha, *(const float *)beta);
    return 0;
}
int cudnnSetTensor(void *handle, Tensor y, void *data, const void *value) {
    static const int sizes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2};
    char *p = text;
    for (int i = 0; i < sizes[y->type]; i++) p += sprintf(p, "%02x", ((const unsigned char *)value)[i]);
    return result();
}
int cudnnGetRNNWorkspaceSize(void *h, void *r, const int length, const Tensor *x, size_t *size) {
    *size = (size_t)7 << 40;
    char *p = text + sprintf(text, "%d", length);
    for (int i = 0; i < length; i++) p += sprintf(p, " %d", x[i]->rank);
    return result();
}
int cudnnSetRNNDataDescriptor(void *d, int type, int layout, int longest, int batch, int size, const int lengths[],
                              void *fill) {
    sprintf(text, "%d %d %d %a", batch, lengths[0], lengths[1], fill ? *(double *)fill : -1.0);
    return result();
}
int cudnnGetRNNDataDescriptor(void *d, int *type, int *layout, int *longest, int *batch, int *size, int asked,
                              int lengths[], void *fill) {
    *type = 1; *layout = 0; *longest = 9; *batch = 2; *size = 6;
    lengths[0] = 9; lengths[1] = 8; lengths[2] = 77;
    *(double *)fill = 0.1;
    return result();
}
int cudnnGetConvolutionForwardAlgorithm_v7(void *h, void *x, void *w, void *c, void *y, const int asked, int *got,
                                           Row rows[]) {
    *got = 2;
    for (int i = 0; i < 2 && i < asked; i++) {
        Row row = {6 + i, 3000 * i, 0.5f, (size_t)3 << 33, 1, 2, {1, 2, 3}};
        rows[i] = row;
    }
    return result();
}
static Callback callback;
static void *user;
int cudnnSetCallback(unsigned mask, void *data, Callback f) { callback = f; user = data; return 0; }
int cudnnGetCallback(unsigned *mask, void **data, Callback *f) {
    *mask = 8; *data = user; *f = callback;
    Debug debug = {91900, 2000, 1, 2, 3, NULL, (void *)5, 6, 7, 8, {0}};
    if (callback) callback(3, user, &debug, "one\0two\0");
    return 0;
}
int cudnnCTCLoss(void *h, Tensor p, void *probs, const int labels[], const int counts[], const int steps[], void *costs,
                 Tensor g, void *gradients, int algo, void *d, void *workspace, size_t bytes) {
    sprintf(text, "%d %d %d %zu", labels[2], counts[1], steps[1], bytes);
    return result();
}
"""


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> LibrarySubject:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "fake.c").write_text(SOURCE)
    subprocess.run(
        [compiler, "-O1", "-fPIC", "-shared", "-o", folder / "libfake.so", folder / "fake.c"], check=True, timeout=60
    )
    return LibrarySubject(folder / "libfake.so")


@pytest.fixture
def last(subject: LibrarySubject):
    function = subject.library.symbol("last_call")
    function.restype = ctypes.c_char_p
    return lambda: function().decode()


def fail_next(subject: LibrarySubject, status: int) -> None:
    subject.library.symbol("fail_next")(status)


class TestArgumentPassing:
    """The C function receives the arguments that the Python caller passed."""

    def test_integers_and_enumerators(self, subject, last):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, DOUBLE, 2, -3, 2**31 - 1, -(2**31))
        assert last() == "0 1 2 -3 2147483647 -2147483648"

    def test_names_can_be_keywords(self, subject, last):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnSetTensor4dDescriptor(tensor, w=4, h=3, c=2, n=1, dataType=FLOAT, format=9)
        assert last() == "9 0 1 2 3 4"
        with pytest.raises(TypeError, match="missing a required argument: 'format'"):
            subject.cudnn.cudnnSetTensor4dDescriptor(tensor)

    def test_prepared_calls_repeat_the_same_call(self, subject, last):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        repeat = subject.cudnn.cudnnSetTensorNdDescriptor.prepare(tensor, HALF, 2, [4, 5], [5, 1])
        subject.cudnn.cudnnDestroyTensorDescriptor(None)
        for _ in range(2):
            repeat()
            assert last() == "2 2 4/5 5/1"
        fail_next(subject, 3)
        with pytest.raises(CudnnError, match=r"libfake\.so returned 3"):
            repeat()
        with pytest.raises(NotExpressible):
            subject.cudnn.cudnnSetTensorNdDescriptor.prepare(tensor, HALF, 2, [4], [5, 1])

    def test_doubles_floats_and_wide_integers(self, subject, last):
        descriptor = subject.cudnn.cudnnCreateActivationDescriptor()
        subject.cudnn.cudnnSetActivationDescriptor(descriptor, RELU, NAN, 0.1)
        assert last() == f"1 1 {(0.1).hex()}"
        dropout = subject.cudnn.cudnnCreateDropoutDescriptor()
        subject.cudnn.cudnnRestoreDropoutDescriptor(dropout, None, 0.25, None, 2**40, 2**64 - 2)
        assert last() == f"0 0x1p-2 0 {2**40} fffffffffffffffe"

    def test_arrays_go_in_and_come_back_cut_to_what_was_filled(self, subject, last):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnSetTensorNdDescriptor(tensor, HALF, 3, np.array([4, 5, 6]), (30, 6, 1))
        assert last() == "2 3 4/30 5/6 6/1"
        got = subject.cudnn.cudnnGetTensorNdDescriptor(tensor, 8)
        assert got == (HALF, 3, (4, 5, 6), (0, -1, -2))
        assert got._fields == ("dataType", "nbDims", "dimA", "strideA")
        assert subject.cudnn.cudnnGetTensorNdDescriptor(tensor, 2).dimA == (4, 5)
        assert subject.cudnn.cudnnGetTensorNdDescriptor(tensor, -1).dimA == ()

    def test_outputs_are_returned_in_the_documented_order(self, subject):
        pooling, tensor = subject.cudnn.cudnnCreatePoolingDescriptor(), subject.cudnn.cudnnCreateTensorDescriptor()
        got = subject.cudnn.cudnnGetPooling2dForwardOutputDim(pooling, tensor)
        assert (got.outN, got.outC, got.outH, got.outW) == tuple(got) == (2, 3, -4, 5)

    @pytest.mark.parametrize(("data_type", "seen"), [(FLOAT, "float"), (HALF, "float"), (DOUBLE, "double")])
    def test_scaling_parameters_follow_the_destination(self, subject, last, data_type, seen):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnSetTensorNdDescriptor(tensor, data_type, 1, [1], [1])
        subject.cudnn.cudnnScaleTensor(None, tensor, None, 1.5)
        assert last() == f"{seen} 0x1.8p+0"

    def test_scaling_parameters_before_their_tensor(self, subject, last):
        source, target = subject.cudnn.cudnnCreateFilterDescriptor(), subject.cudnn.cudnnCreateFilterDescriptor()
        subject.cudnn.cudnnSetFilter4dDescriptor(target, DOUBLE, NCHW, 1, 1, 1, 1)
        subject.cudnn.cudnnTransformFilter(None, None, 2, source, None, -0.5, target, None)
        assert last() == "0x1p+1 -0x1p-1"

    @pytest.mark.parametrize(
        ("data_type", "value", "seen"),
        [
            ("FLOAT", 1.0, "0000803f"),
            ("DOUBLE", 1.0, "000000000000f03f"),
            ("HALF", 1.0, "003c"),
            ("BFLOAT16", 1.0, "803f"),
            ("INT32", -2, "feffffff"),
            ("INT8", -2, "fe"),
            ("UINT8x4", 254, "fefefefe"),
        ],
    )
    def test_set_tensor_passes_a_value_of_the_tensors_type(self, subject, last, data_type, value, seen):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnSetTensorNdDescriptor(tensor, cudnnDataType_t[f"CUDNN_DATA_{data_type}"], 1, [1], [1])
        subject.cudnn.cudnnSetTensor(None, tensor, None, value)
        assert last() == seen

    def test_arrays_of_descriptors_and_sizes(self, subject, last):
        tensors = []
        for rank in (1, 2, 3):
            tensors.append(subject.cudnn.cudnnCreateTensorDescriptor())
            subject.cudnn.cudnnSetTensorNdDescriptor(tensors[-1], FLOAT, rank, [1] * rank, [1] * rank)
        rnn = subject.cudnn.cudnnCreateRNNDescriptor()
        assert subject.cudnn.cudnnGetRNNWorkspaceSize(None, rnn, 3, tensors) == 7 << 40
        assert last() == "3 1 2 3"
        with pytest.raises(NotExpressible, match="xDesc: 3 descriptors for seqLength 4"):
            subject.cudnn.cudnnGetRNNWorkspaceSize(None, rnn, 4, tensors)

    def test_padding_fill_has_the_type_of_the_data(self, subject, last):
        descriptor = subject.cudnn.cudnnCreateRNNDataDescriptor()
        subject.cudnn.cudnnSetRNNDataDescriptor(descriptor, DOUBLE, 0, 9, 2, 6, [9, 8], 0.5)
        assert last() == "2 9 8 0x1p-1"
        got = subject.cudnn.cudnnGetRNNDataDescriptor(descriptor, 8)
        assert got.seqLengthArray == (9, 8)
        assert got.paddingFill == 0.1

    def test_structures_become_named_tuples(self, subject):
        rows = subject.cudnn.cudnnGetConvolutionForwardAlgorithm_v7(None, None, None, None, None, 1)
        assert rows.returnedAlgoCount == 2
        (row,) = rows.perfResults
        assert row.algo is cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
        assert row[1:4] == (cudnnStatus_t.CUDNN_STATUS_SUCCESS, 0.5, 3 << 33)
        assert row.determinism is cudnnDeterminism_t.CUDNN_DETERMINISTIC
        assert row.mathType is cudnnMathType_t(2)
        assert row.reserved == (1, 2, 3)
        both = subject.cudnn.cudnnGetConvolutionForwardAlgorithm_v7(None, None, None, None, None, 9).perfResults
        assert [r.status for r in both] == [cudnnStatus_t(0), cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED]

    def test_a_misprinted_pointer_is_passed_by_value(self, subject, last):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        subject.cudnn.cudnnCTCLoss(
            None, tensor, None, [1, 2, 3], [1, 2], [5, 6], None, tensor, None, 0, None, None, 2**35
        )
        assert last() == f"3 2 6 {2**35}"

    def test_several_objects_from_one_create(self, subject, last):
        objects = subject.cudnn.cudnnCreateAlgorithmPerformance(3)
        assert len({o.address for o in objects}) == 3
        subject.cudnn.cudnnDestroyAlgorithmPerformance(objects, 3)
        assert last() == "1 3"
        assert not any(o.alive for o in objects)

    def test_a_callback_hears_messages_and_can_be_read_back(self, subject):
        heard, data = [], object()
        listener = lambda *message: heard.append(message)  # noqa: E731
        subject.cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, data, listener)
        got = subject.cudnn.cudnnGetCallback()
        assert (got.mask, got.udata, got.fptr) == (8, data, listener)
        ((severity, user_data, debug, text),) = heard
        assert severity is cudnnSeverity_t.CUDNN_SEV_INFO
        assert user_data is data
        assert text == "one\0two\0\0"
        assert debug == (91900, cudnnStatus_t.CUDNN_STATUS_BAD_PARAM, 1, 2, 3, None, 5, 6, 7, 8)
        subject.cudnn.cudnnSetCallback(0, None, None)
        assert subject.cudnn.cudnnGetCallback() == (8, None, None)
        assert len(heard) == 1


class TestRefusals:
    """The binding refuses values that C cannot express and pointers it cannot trust, before it calls the library."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((NCHW, FLOAT, 1, 1, 1, 2**31), "w: 2147483648 does not fit into 32 bits"),
            ((NCHW, FLOAT, 1, 1.5, 1, 1), "c: an integer is needed, not 1.5"),
            ((NCHW, "FLOAT", 1, 1, 1, 1), "dataType: an integer is needed, not 'FLOAT'"),
        ],
    )
    def test_numbers_that_do_not_fit_never_reach_the_library(self, subject, last, arguments, message):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        before = last()
        with pytest.raises(NotExpressible, match=f"cudnnSetTensor4dDescriptor: {message}"):
            subject.cudnn.cudnnSetTensor4dDescriptor(tensor, *arguments)
        assert last() == before

    def test_short_arrays(self, subject):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        with pytest.raises(NotExpressible, match="strideA: 2 entries, but nbDims asks for 3"):
            subject.cudnn.cudnnSetTensorNdDescriptor(tensor, FLOAT, 3, [1, 2, 3], [1, 1])

    def test_destroyed_foreign_and_mistaken_objects(self, subject, last):
        create, set_4d = subject.cudnn.cudnnCreateTensorDescriptor, subject.cudnn.cudnnSetTensor4dDescriptor
        tensor, activation = create(), subject.cudnn.cudnnCreateActivationDescriptor()
        subject.cudnn.cudnnDestroyTensorDescriptor(tensor)
        assert last() == "destroy 1"
        for bad in (
            tensor,
            activation,
            object(),
            4096,
            LibrarySubject(subject.path).cudnn.cudnnCreateTensorDescriptor(),
        ):
            with pytest.raises(Crashes, match="tensorDesc"):
                set_4d(bad, NCHW, FLOAT, 1, 1, 1, 1)
        with pytest.raises(Crashes, match="must not be used any more"):
            subject.cudnn.cudnnDestroyTensorDescriptor(tensor)
        subject.cudnn.cudnnDestroyTensorDescriptor(None)
        assert last() == "destroy 0"

    def test_a_failed_destroy_leaves_the_object_alive(self, subject):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        fail_next(subject, 3)
        with pytest.raises(CudnnError):
            subject.cudnn.cudnnDestroyTensorDescriptor(tensor)
        assert tensor.alive

    def test_device_memory_has_to_be_known(self, subject):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        for bad in (4096, np.zeros(4), b"bytes"):
            with pytest.raises(Crashes, match=r"y: .* is not device memory"):
                subject.cudnn.cudnnScaleTensor(None, tensor, bad, 1.0)

    def test_nulls_that_crash(self, subject):
        guarded = LibrarySubject(subject.path, {"cudnnSetTensorNdDescriptor": ("dimA",)})
        tensor = guarded.cudnn.cudnnCreateTensorDescriptor()
        with pytest.raises(Crashes, match="cudnnSetTensorNdDescriptor: dimA: None is NULL"):
            guarded.cudnn.cudnnSetTensorNdDescriptor(tensor, FLOAT, 3, None, [1, 1, 1])

    def test_names_that_are_not_exported_are_refused(self, subject):
        assert "cudnnScaleTensor" in subject.exports()
        assert "cudnnAddTensor" not in subject.exports()
        assert not hasattr(subject.cudnn, "cudnnAddTensor")
        with pytest.raises(NotExported, match=r"libfake.so does not export cudnnAddTensor"):
            subject.cudnn.cudnnAddTensor(None)
        with pytest.raises(AttributeError, match="cudnnFoo is not a function of the document"):
            subject.cudnn.cudnnFoo()

    def test_files_that_are_not_libraries_are_refused(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="names a shared library"):
            LibrarySubject(tmp_path / "absent.so")
        (tmp_path / "text.so").write_text("no library")
        with pytest.raises(OSError, match="is not a shared library: it does not begin as an ELF file"):
            LibrarySubject(tmp_path / "text.so")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program sets a register of x86-64")
@pytest.mark.parametrize("deed", ["fesetround(FE_UPWARD)", "__builtin_ia32_ldmxcsr(0x9fc0)"])
def test_a_library_does_not_change_how_the_judge_computes(tmp_path, deed):
    """A library that is linked with -ffast-math makes subnormal numbers 0 when it is loaded."""
    (tmp_path / "fast.c").write_text(
        f"#include <fenv.h>\nvoid change(void) {{ {deed}; }} __attribute__((constructor)) static void first(void) {{ change(); }}"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "fast.so", tmp_path / "fast.c", "-lm"], check=True)
    library = Library(tmp_path / "fast.so")
    assert not arithmetic.is_changed() and 5e-324 * float("1") > 0
    library.symbol("change")()
    assert arithmetic.is_changed()
    arithmetic.restore()
    assert not arithmetic.is_changed()


class TestStatus:
    @pytest.mark.parametrize(
        ("number", "name"),
        [
            (3, "BAD_PARAM"),
            (9, "NOT_SUPPORTED"),
            (13, "RUNTIME_FP_OVERFLOW"),
            (1001, "NOT_INITIALIZED"),
            (1005, "LICENSE_ERROR"),
            (2000, "BAD_PARAM"),
            (2002, "BAD_PARAM"),
            (2001, "INVALID_VALUE"),
            (3002, "NOT_SUPPORTED"),
            (3007, "ARCH_MISMATCH"),
            (4000, "INTERNAL_ERROR"),
            (4003, "ALLOC_FAILED"),
            (5003, "EXECUTION_FAILED"),
            (77, "INTERNAL_ERROR"),
            (9999, "INTERNAL_ERROR"),
        ],
    )
    def test_numbers_become_documented_statuses(self, subject, number, name):
        tensor = subject.cudnn.cudnnCreateTensorDescriptor()
        fail_next(subject, number)
        with pytest.raises(CudnnError) as caught:
            subject.cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, FLOAT, 1, 1, 1, 1)
        error = caught.value
        assert error.status is cudnnStatus_t[f"CUDNN_STATUS_{name}"]
        assert isinstance(error, LibraryError)
        assert error.number == number
        assert (error.function, error.clause) == ("cudnnSetTensor4dDescriptor", None)
        assert f"libfake.so returned {number} (status {number})" in str(error)

    def test_a_status_argument_is_counted_as_the_library_counts(self, subject):
        assert subject.cudnn.cudnnGetErrorString(cudnnStatus_t.CUDNN_STATUS_BAD_PARAM) == "status 2000"
        assert subject.cudnn.cudnnGetErrorString(-1) == "status -1"

    def test_bytes_that_are_no_text_are_replaced(self, subject):
        """Bytes outside of UTF-8 are replaced, and NULL is None."""
        assert (
            subject.cudnn.cudnnGetErrorString(771) == "\ufffd\ufffd" and subject.cudnn.cudnnGetErrorString(772) is None
        )
        assert failure_text(subject.library, 771).endswith("771 (\ufffd\ufffd)")
        assert failure_text(subject.library, 772).endswith("772 ()")

    @pytest.mark.parametrize("function, arguments, output", [
        ("cudnnCreateOpTensorDescriptor", (), "opTensorDesc"),
        ("cudnnCreateAttnDescriptor", (), "attnDesc"),
        ("cudnnBackendCreateDescriptor", (0,), "descriptor"),
        ("cudnnCreateAlgorithmPerformance", (6,), r"algoPerf\[5\]"),
    ])  # fmt: skip
    def test_a_success_without_an_object_is_a_finding(self, subject, function, arguments, output):
        with pytest.raises(
            NothingCreated, match=f"{function}: the answer is CUDNN_STATUS_SUCCESS, and {output} is NULL"
        ):
            getattr(subject.cudnn, function)(*arguments)
        numbers = face(9).numbers
        back = {status: documented_status(number) for status, number in numbers.items()}
        assert {status for status in numbers if back[status] != status} == {cudnnStatus_t.CUDNN_STATUS_VERSION_MISMATCH}

    def test_functions_without_status(self, subject):
        assert subject.cudnn.cudnnGetVersion() == subject.version() == 91900


class TestTables:
    """The data tables of the binding name only functions and parameters of the function table."""

    @pytest.mark.parametrize("table", [INPUT_LENGTHS, OUTPUT_LENGTHS])
    def test_lengths_name_existing_parameters(self, table):
        for function, arrays in table.items():
            names = {p.name for p in function_table()[function]}
            for array, length in arrays.items():
                assert {array, length.count, length.filled or array} <= names, function

    def test_null_crashes(self):
        assert not NULL_CRASHES.keys() & (NULL_CRASHES_BEFORE_9 | NULL_CRASHES_SINCE_9).keys()
        for function, names in (NULL_CRASHES | NULL_CRASHES_BEFORE_9 | NULL_CRASHES_SINCE_9).items():
            passed = {p.name for p in function_table()[function] if not p.is_returned}
            assert set(names) <= passed, function

    def test_null_faults(self):
        """NULL_FAULTS holds device pointers only; for release 9 the binding refuses them as NULL, too."""
        for function, names in NULL_FAULTS.items():
            assert set(names) <= {p.name for p in function_table()[function] if p.memory == "device"}, function
            older, newer = (vendor_null_crashes(version).get(function, ()) for version in (8907, 91900))
            assert newer == (*older, *names)

    def test_every_parameter_has_a_slot(self):
        """The binding can pass every parameter of every documented function."""
        for function, parameters in function_table().items():
            for index, parameter in enumerate(parameters):
                if (function, parameter.name) not in SPECIAL_SLOTS:
                    assert type(slot_of(function, index, parameters)) is not Slot, f"{function}: {parameter.name}"

    def test_every_array_that_comes_back_has_a_length(self):
        for function, parameters in function_table().items():
            arrays = {p.name for p in parameters if p.is_returned and "[]" in p.ctype}
            assert arrays == set(OUTPUT_LENGTHS.get(function, {})), function

    @pytest.mark.parametrize(
        ("function", "descriptor"),
        [
            ("cudnnPoolingForward", "yDesc"),
            ("cudnnReduceTensor", "cDesc"),
            ("cudnnOpTensor", "cDesc"),
            ("cudnnConvolutionBackwardFilter", "dwDesc"),
            ("cudnnConvolutionBackwardBias", "dbDesc"),
            ("cudnnActivationBackward", "dxDesc"),
            ("cudnnTransformTensorEx", "destDesc"),
            ("cudnnSetTensor", "yDesc"),
        ],
    )
    def test_scalars_are_typed_by_the_destination(self, function, descriptor):
        scalars = [p for p in function_table()[function] if p.typed_by is not None]
        assert scalars and {p.typed_by for p in scalars} == {descriptor}

    def test_every_scaling_parameter_has_a_destination(self):
        for function, parameters in function_table().items():
            for index, parameter in enumerate(parameters):
                if (function, parameter.name) in SPECIAL_SLOTS:
                    continue
                slot = slot_of(function, index, parameters)
                assert not isinstance(slot, Scaling) or slot.descriptor is not None, function


# NVIDIA's own library -------------------------------------------------------------------------------------------------

VENDOR = find_vendor_library()
needs_vendor = pytest.mark.skipif(VENDOR is None, reason="NVIDIA's library is not installed (extra: vendor)")


@pytest.fixture(scope="module")
def vendor() -> LibrarySubject:
    assert VENDOR is not None
    return LibrarySubject(VENDOR)


@pytest.fixture
def cudnn(vendor):
    return vendor.cudnn


@needs_vendor
def test_an_output_that_is_not_asked_for(cudnn):
    """An optional output may be left out: its pointer is NULL and the result lacks it. Other outputs are required."""
    query = cudnn.cudnnGetMultiHeadAttnBuffers
    inference = query.without("reserveSpaceSizeInBytes")
    assert inference.passed == query.passed
    assert inference.result_type._fields == ("weightSizeInBytes", "workSpaceSizeInBytes")
    with pytest.raises(CudnnError, match="BAD_PARAM"):
        inference(None, None)
    with pytest.raises(ValueError, match="weightSizeInBytes is not one of the outputs that may be NULL"):
        query.without("weightSizeInBytes")


def prototypes(folder: Path) -> dict[str, list[str]]:
    """Return the parameter types of each function of the public header."""
    text = "\n".join(path.read_text() for path in sorted(folder.glob("cudnn_*.h")))
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    found = {}
    for name, parameters in re.findall(r"CUDNNWINAPI\s+(cudnn\w+)\s*\(([^;]*?)\)\s*;", text):
        types = []
        for parameter in " ".join(parameters.split()).split(","):
            match = re.fullmatch(r"(.*?)\w+((?:\[\w*\])*)", parameter.strip())
            types.append(plain(match[1] + "*" * match[2].count("[")))
        found[name] = [] if types == [""] else types
    return found


def plain(ctype: str) -> str:
    """Return a C type without the qualifiers and names that do not change how it is passed."""
    ctype = re.sub(r"\bconst\b|\s", "", ctype.replace("[]", "*").replace("void*", "void *")).replace(
        "unsignedint", "unsigned"
    )
    return {"cudnnRNNPaddingMode_t": "unsigned", "cudnnRNNPaddingMode_t*": "unsigned*"}.get(ctype, ctype).replace(
        "int32_t", "int"
    )


@needs_vendor
class TestVendor:
    def test_prototypes_are_those_of_the_public_header(self):
        found = prototypes(VENDOR.parent.parent / "include")
        compared = 0
        for function, parameters in function_table().items():
            if function not in found or function == "cudnnBackendInitialize":  # It lost two parameters after 8.0.3.
                continue
            assert [plain(p.ctype) for p in parameters] == found[function], function
            compared += 1
        assert compared >= 200

    def test_it_is_found_and_described(self, vendor):
        facts = vendor.environment()
        assert facts["library"] == VENDOR.name
        assert facts["version"] == vendor.cudnn.cudnnGetVersion() >= 8000
        assert facts["exported_functions"] == len(vendor.exports()) >= 200
        assert (facts["gpu"] is None) == (facts["compute_capability"] is None)

    def test_tensor_4d_round_trip(self, cudnn):
        tensor = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, HALF, 2, 3, 4, 5)
        assert cudnn.cudnnGetTensor4dDescriptor(tensor) == (HALF, 2, 3, 4, 5, 60, 20, 5, 1)
        assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 240
        cudnn.cudnnSetTensor4dDescriptorEx(tensor, FLOAT, 2, 3, 4, 5, 1000, 200, 30, 4)
        assert cudnn.cudnnGetTensor4dDescriptor(tensor)[5:] == (1000, 200, 30, 4)
        cudnn.cudnnDestroyTensorDescriptor(tensor)

    def test_nd_arrays(self, cudnn):
        tensor = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensorNdDescriptor(tensor, DOUBLE, 5, (2, 3, 4, 5, 6), (360, 120, 30, 6, 1))
        assert cudnn.cudnnGetTensorNdDescriptor(tensor, 8) == (DOUBLE, 5, (2, 3, 4, 5, 6), (360, 120, 30, 6, 1))
        assert cudnn.cudnnGetTensorNdDescriptor(tensor, 3)[1:] == (5, (2, 3, 4), (360, 120, 30))
        cudnn.cudnnSetTensorNdDescriptorEx(tensor, NCHW, FLOAT, 4, [1, 2, 3, 4])
        assert cudnn.cudnnGetTensorNdDescriptor(tensor, 4).strideA == (24, 12, 4, 1)

    def test_refusals_have_the_documented_status(self, cudnn):
        tensor = cudnn.cudnnCreateTensorDescriptor()
        for arguments, status in [
            ((tensor, NCHW, FLOAT, 0, 1, 1, 1), "BAD_PARAM"),
            ((tensor, NCHW, 99, 1, 1, 1, 1), "BAD_PARAM"),
            ((None, NCHW, FLOAT, 1, 1, 1, 1), "BAD_PARAM"),
            ((tensor, NCHW, FLOAT, 2**16, 2**15, 1, 1), "NOT_SUPPORTED"),
        ]:
            with pytest.raises(CudnnError) as caught:
                cudnn.cudnnSetTensor4dDescriptor(*arguments)
            assert caught.value.status.name == f"CUDNN_STATUS_{status}"

    def test_nulls_that_crash_are_refused(self, vendor):
        """Each listed parameter is refused when it alone is NULL, before the other arguments are read."""
        listed = vendor_null_crashes(vendor.version())
        assert len(listed) > 40
        for function in listed.keys() & vendor.exports():
            passed = [p.name for p in function_table()[function] if not p.is_returned]
            for name in listed[function]:
                arguments = {other: None if other == name else object() for other in passed}
                with pytest.raises(Crashes, match=f"{function}: {name}: None is NULL"):
                    getattr(vendor.cudnn, function)(**arguments)

    def test_descriptor_kinds_round_trip(self, cudnn):
        """Each getter returns what the setter stored, for descriptors that need no handle."""
        for name, set_, get, arguments, expected in [
            ("Filter", "SetFilter4d", "GetFilter4d", (FLOAT, NCHW, 6, 5, 3, 2), (FLOAT, NCHW, 6, 5, 3, 2)),
            ("Activation", "SetActivation", "GetActivation", (RELU, NAN, 0.25), (RELU, NAN, 0.25)),
            ("OpTensor", "SetOpTensor", "GetOpTensor", (2, FLOAT, NAN), (2, FLOAT, NAN)),
            ("ReduceTensor", "SetReduceTensor", "GetReduceTensor", (4, DOUBLE, NAN, 1, 0), (4, DOUBLE, NAN, 1, 0)),
            ("Pooling", "SetPooling2d", "GetPooling2d", (MAX, NAN, 3, 2, 1, 0, 2, 1), (MAX, NAN, 3, 2, 1, 0, 2, 1)),
            ("LRN", "SetLRN", "GetLRN", (5, 1e-4, 0.75, 2.0), (5, 1e-4, 0.75, 2.0)),
            ("Convolution", "SetConvolution2d", "GetConvolution2d", *[(1, 2, 3, 4, 5, 6, 1, FLOAT)] * 2),
            ("CTCLoss", "SetCTCLoss", "GetCTCLoss", (FLOAT,), FLOAT),
        ]:
            descriptor = getattr(cudnn, f"cudnnCreate{name}Descriptor")()
            getattr(cudnn, f"cudnn{set_}Descriptor")(descriptor, *arguments)
            assert getattr(cudnn, f"cudnn{get}Descriptor")(descriptor) == expected, name
            getattr(cudnn, f"cudnnDestroy{name}Descriptor")(descriptor)
            with pytest.raises(Crashes):
                getattr(cudnn, f"cudnn{get}Descriptor")(descriptor)

    def test_nd_descriptors(self, cudnn):
        weights = cudnn.cudnnCreateFilterDescriptor()
        cudnn.cudnnSetFilterNdDescriptor(weights, FLOAT, NCHW, 5, [6, 5, 4, 3, 2])
        assert cudnn.cudnnGetFilterNdDescriptor(weights, 8) == (FLOAT, NCHW, 5, (6, 5, 4, 3, 2))
        assert cudnn.cudnnGetFilterSizeInBytes(weights) == 4 * 720
        pooling = cudnn.cudnnCreatePoolingDescriptor()
        cudnn.cudnnSetPoolingNdDescriptor(pooling, MAX, NAN, 3, [2, 3, 4], [0, 1, 2], [1, 2, 3])
        assert cudnn.cudnnGetPoolingNdDescriptor(pooling, 6) == (MAX, NAN, 3, (2, 3, 4), (0, 1, 2), (1, 2, 3))
        transform = cudnn.cudnnCreateTensorTransformDescriptor()
        cudnn.cudnnSetTensorTransformDescriptor(transform, 4, 1, [0, 1, 2, 3], [3, 2, 1, 0], [2, 3], 1)
        got = cudnn.cudnnGetTensorTransformDescriptor(transform, 4)
        assert got == (1, (0, 1, 2, 3), (3, 2, 1, 0), (2, 3), 1)
        convolution = cudnn.cudnnCreateConvolutionDescriptor()
        cudnn.cudnnSetConvolutionNdDescriptor(convolution, 3, [1, 2, 3], [4, 5, 6], [1, 1, 2], 1, FLOAT)
        assert cudnn.cudnnGetConvolutionNdDescriptor(convolution, 6)[:4] == (3, (1, 2, 3), (4, 5, 6), (1, 1, 2))

    def test_output_dimensions(self, cudnn):
        tensor, pooling = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreatePoolingDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, FLOAT, 2, 3, 9, 8)
        cudnn.cudnnSetPooling2dDescriptor(pooling, MAX, NAN, 3, 2, 1, 0, 2, 3)
        assert cudnn.cudnnGetPooling2dForwardOutputDim(pooling, tensor) == (2, 3, 5, 3)
        assert cudnn.cudnnGetPoolingNdForwardOutputDim(pooling, tensor, 4) == (2, 3, 5, 3)
        transform, target = cudnn.cudnnCreateTensorTransformDescriptor(), cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensorTransformDescriptor(transform, 4, NCHW, [0, 0, 1, 1], [0, 0, 0, 1], None, 0)
        assert cudnn.cudnnInitTransformDest(transform, tensor, target) == 2 * 3 * 10 * 10 * 4
        assert cudnn.cudnnGetTensorNdDescriptor(target, 8).dimA == (2, 3, 10, 10)

    def test_buffers_are_measured_by_their_descriptor(self, vendor, cudnn):
        tensor, weights = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateFilterDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, DOUBLE, 2, 3, 4, 5)
        cudnn.cudnnSetFilter4dDescriptor(weights, HALF, NCHW, 2, 3, 4, 5)
        assert size_in_bytes(vendor.library, tensor.ctype, tensor.address) == 960
        assert size_in_bytes(vendor.library, weights.ctype, weights.address) == 240

    def test_library_facts(self, cudnn):
        version = cudnn.cudnnGetVersion()
        scale = (1000, 100, 1) if version < 90000 else (10000, 100, 1)
        parts = [cudnn.cudnnGetProperty(kind) for kind in list(libraryPropertyType)[:3]]
        assert sum(p * s for p, s in zip(parts, scale, strict=True)) == version
        assert cudnn.cudnnGetErrorString(cudnnStatus_t.CUDNN_STATUS_BAD_PARAM) == "CUDNN_STATUS_BAD_PARAM"
        assert cudnn.cudnnGetCudartVersion() > 10000

    def test_log_callback(self, cudnn):
        heard = []
        tensor = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, "me", lambda *message: heard.append(message))
        try:
            cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, FLOAT, 2, 3, 4, 5)
        finally:
            cudnn.cudnnSetCallback(0, None, None)
        (message,) = [m for m in heard if "cudnnSetTensor4dDescriptor() called" in m[3]]
        severity, user_data, debug, text = message
        assert (severity, user_data) == (cudnnSeverity_t.CUDNN_SEV_INFO, "me")
        assert debug.cudnn_version == cudnn.cudnnGetVersion()
        assert text.endswith("\0\0")

    def test_backend_attributes(self, cudnn):
        tensor = cudnn.cudnnBackendCreateDescriptor(17)
        for name, kind, values in [
            (906, 3, [7]),
            (901, 1, [0]),
            (902, 3, [2, 3, 4]),
            (903, 3, [12, 4, 1]),
            (900, 3, [16]),
        ]:
            cudnn.cudnnBackendSetAttribute(tensor, name, kind, len(values), values)
        cudnn.cudnnBackendFinalize(tensor)
        got = cudnn.cudnnBackendGetAttribute(tensor, 902, 3, 8)
        assert (got.elementCount, got.arrayOfElements) == (3, (2, 3, 4))
        assert cudnn.cudnnBackendGetAttribute(tensor, 901, 1, 1).arrayOfElements == (FLOAT,)
        assert cudnn.cudnnBackendGetAttribute(tensor, 907, 2, 1).arrayOfElements == (False,)
        pointwise, operation = cudnn.cudnnBackendCreateDescriptor(0), cudnn.cudnnBackendCreateDescriptor(13)
        for name, kind, value in [(0, 14, 100), (1, 1, FLOAT)]:
            cudnn.cudnnBackendSetAttribute(pointwise, name, kind, 1, [value])
        cudnn.cudnnBackendFinalize(pointwise)
        for name, value in [(750, pointwise), (751, tensor), (753, tensor)]:
            cudnn.cudnnBackendSetAttribute(operation, name, 15, 1, [value])
        with pytest.raises(Crashes, match="not data types"):
            cudnn.cudnnBackendSetAttribute(tensor, 901, 1, 1, [-1])
        cudnn.cudnnBackendDestroyDescriptor(tensor)

    def test_fused_operation_packs(self, cudnn):
        if cudnn.cudnnGetVersion() >= 90000:
            pytest.skip("refused by release 9")
        pack, tensor = cudnn.cudnnCreateFusedOpsConstParamPack(0), cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, HALF, 2, 8, 5, 5)
        assert cudnn.cudnnGetFusedOpsConstParamPackAttribute(pack, 0).param is None
        cudnn.cudnnSetFusedOpsConstParamPackAttribute(pack, 0, tensor)
        copy, is_null = cudnn.cudnnGetFusedOpsConstParamPackAttribute(pack, 0)
        assert is_null == 0
        assert copy is not tensor
        assert cudnn.cudnnGetTensorNdDescriptor(copy, 8) == cudnn.cudnnGetTensorNdDescriptor(tensor, 8)
        cudnn.cudnnSetFusedOpsConstParamPackAttribute(pack, 2, 1)
        assert cudnn.cudnnGetFusedOpsConstParamPackAttribute(pack, 2).param.name == "CUDNN_BATCHNORM_SPATIAL"
        variants = cudnn.cudnnCreateFusedOpsVariantParamPack(2)
        cudnn.cudnnSetFusedOpsVariantParamPackAttribute(variants, 103, 1e-3)
        assert cudnn.cudnnGetFusedOpsVariantParamPackAttribute(variants, 103) == 1e-3

    def test_getters_return_the_objects_that_were_set(self, cudnn):
        if not hasattr(cudnn, "cudnnSetRNNDescriptor_v8"):
            pytest.skip("not exported")
        rnn, dropout = cudnn.cudnnCreateRNNDescriptor(), cudnn.cudnnCreateDropoutDescriptor()
        cudnn.cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 0, 0, FLOAT, FLOAT, 0, 5, 4, 4, 1, dropout, 0)
        got = cudnn.cudnnGetRNNDescriptor_v8(rnn)
        assert got.dropoutDesc is dropout
        assert (got.inputSize, got.hiddenSize) == (5, 4)

    def test_create_without_a_gpu(self, vendor):
        if vendor.environment()["gpu"] is not None:
            pytest.skip("there is a GPU")
        for keywords in ({}, {"device": 0}):
            with pytest.raises(CudnnError) as caught:
                vendor.cudnn.cudnnCreate(**keywords)
            assert caught.value.status is cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED
        with pytest.raises(ValueError, match="cannot be chosen"):
            vendor.cudnn.cudnnCreate(backend="reference")
        with pytest.raises(ValueError, match="device is the number of a GPU"):
            vendor.cudnn.cudnnCreate(device="gpu")


@needs_vendor
class TestOnTheGpu:
    """Calls through the binding compute the formulas that these tests write out."""

    @pytest.fixture
    def handle(self, cudnn):
        try:
            handle = cudnn.cudnnCreate()
        except CudnnError as error:
            pytest.skip(f"no GPU: {error}")
        yield handle
        cudnn.cudnnDestroy(handle)

    @staticmethod
    def tensor(cudnn, data_type, *dims):
        descriptor = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(descriptor, NCHW, data_type, *dims)
        return descriptor

    @pytest.mark.parametrize("data_type", [FLOAT, DOUBLE])
    def test_activation_with_scaling(self, cudnn, handle, data_type):
        dtype = {FLOAT: np.float32, DOUBLE: np.float64}[data_type]
        x = np.linspace(-2, 3, 120).astype(dtype)
        before = np.arange(120).astype(dtype)
        tensor, relu = self.tensor(cudnn, data_type, 2, 3, 4, 5), cudnn.cudnnCreateActivationDescriptor()
        cudnn.cudnnSetActivationDescriptor(relu, RELU, NAN, 0.0)
        device_x, device_y = handle.to_device(x), handle.to_device(before)
        cudnn.cudnnActivationForward(handle, relu, 2.0, tensor, device_x, 0.5, tensor, device_y)
        assert np.allclose(device_y.to_host(dtype, 120), 2 * np.maximum(x, 0) + before / 2, rtol=1e-6)

    def test_streams_slices_and_values(self, cudnn, handle):
        stream = handle.new_stream()
        cudnn.cudnnSetStream(handle, stream)
        assert cudnn.cudnnGetStream(handle) is stream is handle.stream
        tensor = self.tensor(cudnn, DOUBLE, 1, 1, 1, 4)
        buffer = handle.to_device(np.zeros(12))
        cudnn.cudnnSetTensor(handle, tensor, buffer.slice(32, 32), 1.5)
        cudnn.cudnnScaleTensor(handle, tensor, buffer.address + 32, 2.0)
        assert buffer.to_host(np.float64, 12).tolist() == [0] * 4 + [3] * 4 + [0] * 4
        cudnn.cudnnSetStream(handle, None)
        assert cudnn.cudnnGetStream(handle) is None
        with pytest.raises(Crashes, match="is not a stream"):
            cudnn.cudnnSetStream(handle, 12345)

    def test_memory_that_the_library_must_not_get(self, cudnn, handle):
        tensor = self.tensor(cudnn, FLOAT, 1, 1, 1, 4)
        with pytest.raises(Crashes, match="yDesc spans 16 bytes, the buffer has 15"):
            cudnn.cudnnScaleTensor(handle, tensor, handle.allocate(15), 2.0)
        buffer = handle.allocate(16)
        buffer.free()
        for freed in (buffer, buffer.address + 4096):
            with pytest.raises(Crashes):
                cudnn.cudnnScaleTensor(handle, tensor, freed, 2.0)

    def test_dropout_states_come_back_as_their_buffer(self, cudnn, handle):
        dropout, states = cudnn.cudnnCreateDropoutDescriptor(), handle.allocate(cudnn.cudnnDropoutGetStatesSize(handle))
        cudnn.cudnnSetDropoutDescriptor(dropout, handle, 0.25, states, states.nbytes, 2**40 + 1)
        got = cudnn.cudnnGetDropoutDescriptor(dropout, handle)
        assert (got.dropout, got.seed) == (0.25, 2**40 + 1)
        assert got.states is states

    def test_rnn_weights_are_parts_of_the_weight_space(self, cudnn, handle):
        rnn, dropout = cudnn.cudnnCreateRNNDescriptor(), cudnn.cudnnCreateDropoutDescriptor()
        cudnn.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
        cudnn.cudnnSetRNNDescriptor_v8(rnn, 0, 2, 2, 0, 0, FLOAT, FLOAT, 0, 5, 4, 4, 1, dropout, 0)
        space = handle.to_device(np.arange(cudnn.cudnnGetRNNWeightSpaceSize(handle, rnn) // 4, dtype=np.float32))
        matrix, bias = self.tensor(cudnn, FLOAT, 1, 1, 1, 1), self.tensor(cudnn, FLOAT, 1, 1, 1, 1)
        got = cudnn.cudnnGetRNNWeightParams(handle, rnn, 0, space.nbytes, space, 1, matrix, bias)
        shape = cudnn.cudnnGetTensorNdDescriptor(matrix, 3).dimA
        assert shape == (1, 4, 5)
        first = (got.mAddr.address - space.address) // 4
        assert got.mAddr.to_host(np.float32, shape).ravel().tolist() == list(range(first, first + 20))

    def test_convolution_with_the_algorithm_that_was_found(self, cudnn, handle):
        random = np.random.default_rng(1)
        x, w = random.integers(-3, 4, (2, 3, 6, 5)), random.integers(-3, 4, (4, 3, 1, 1))
        x_desc, y_desc = self.tensor(cudnn, FLOAT, 2, 3, 6, 5), self.tensor(cudnn, FLOAT, 2, 4, 6, 5)
        w_desc, convolution = cudnn.cudnnCreateFilterDescriptor(), cudnn.cudnnCreateConvolutionDescriptor()
        cudnn.cudnnSetFilter4dDescriptor(w_desc, FLOAT, NCHW, 4, 3, 1, 1)
        cudnn.cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, 1, FLOAT)
        assert cudnn.cudnnGetConvolution2dForwardOutputDim(convolution, x_desc, w_desc) == (2, 4, 6, 5)
        found = cudnn.cudnnGetConvolutionForwardAlgorithm_v7(handle, x_desc, w_desc, convolution, y_desc, 8)
        assert len(found.perfResults) == found.returnedAlgoCount > 1
        best = found.perfResults[0]
        assert best.status is cudnnStatus_t.CUDNN_STATUS_SUCCESS
        size = cudnn.cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, convolution, y_desc, best.algo)
        assert size == best.memory
        work, y = handle.allocate(size), handle.allocate(2 * 4 * 30 * 4)
        inputs = [handle.to_device(a.astype(np.float32)) for a in (x, w)]
        cudnn.cudnnConvolutionForward(
            *(handle, 1.0, x_desc, inputs[0], w_desc, inputs[1], convolution, best.algo, work, size, 0.0, y_desc, y)
        )
        expected = np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0])
        assert np.array_equal(y.to_host(np.float32, (2, 4, 6, 5)), expected)

    def test_a_destroyed_handle_is_refused(self, cudnn, handle):
        other = cudnn.cudnnCreate()
        cudnn.cudnnDestroy(other)
        with pytest.raises(Crashes, match="must not be used any more"):
            cudnn.cudnnGetStream(other)

    def test_the_gpu_is_named(self, vendor, handle):
        facts = vendor.environment()
        assert re.fullmatch(r"\d+\.\d", facts["compute_capability"])
        assert facts["gpu"]


@pytest.mark.parametrize("beyond, ends", [(0, 0), (1, -11)])
def test_host_memory_ends_at_a_page_that_cannot_be_read(beyond, ends):
    """Memory before the guard page is zero and writable, and freed regions are used again."""
    script = f"""
import ctypes
from dualdnn.conformance.subjects.binding.host import GuardedMemory
memory = GuardedMemory()
for kind in (ctypes.c_int, ctypes.c_int * 3, ctypes.c_char * 5000, ctypes.c_int * 0):
    for _ in range(2):
        placed = memory.place(kind)
        size = ctypes.sizeof(kind)
        assert ctypes.string_at(ctypes.addressof(placed), size) == bytes(size)
        ctypes.memset(ctypes.addressof(placed), 7, size)
        del placed
assert {{pages: len(regions) for pages, regions in memory.free.items()}} == {{1: 1, 2: 1}}
ctypes.string_at(ctypes.addressof(memory.place(ctypes.c_int * 3)), 12 + {beyond})
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == ends
