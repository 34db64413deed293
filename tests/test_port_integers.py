"""``dualdnn port``: a number in place of an enumerator is translated where it is known, else a person is told; never silent."""

from __future__ import annotations

import pytest

pytest.importorskip("tree_sitter", reason="the porting tool needs tree-sitter: pip install 'dualdnn[port]'")
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.conformance import command_line
from dualdnn.conformance.port import forms, integers
from dualdnn.conformance.port.python_clients import port_python
from dualdnn.conformance.port.rewriting import port_c

HELPER = "dualdnnPortSetActivationDescriptor"


def ported(text, path="file.cu"):
    return port_c(path, text.encode(), forms.table())


def in_function(statement, *parameters):
    return f"void f({', '.join(parameters)}) {{ {statement}; }}"


# (source, what the output has in its place)
TRANSLATED = [
    ("cudnnSetActivationDescriptor(a, 1, 0, 0.0)", f"{HELPER}(a, miopenActivationRELU, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)"),
    ("cudnnSetActivationDescriptor(a, (1), 0x0, 0.0)", f"{HELPER}(a, (miopenActivationRELU), DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)"),
    ("cudnnSetPooling2dDescriptor(p, 1, 0, 2, 2, 0, 0, 2, 2)", "miopenSet2dPoolingDescriptor(p, miopenPoolingAverageInclusive, 2, 2, 0, 0, 2, 2)"),
    ("cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, 1, 0)", "miopenInitConvolutionDescriptor(c, miopenConvolution, 1, 1, 1, 1, 1, 1)"),
    ("cudnnSetTensor4dDescriptor(d, 0, (cudnnDataType_t)0, 1, 2, 3, 4)", "miopenSet4dTensorDescriptor(d, (miopenDataType_t)miopenFloat, 1, 2, 3, 4)"),
    ("cudnnDataType_t t = (cudnnDataType_t)0", "miopenDataType_t t = (miopenDataType_t)miopenFloat"),
    ("x = static_cast<cudnnDataType_t>(2)", "x = static_cast<miopenDataType_t>(miopenHalf)"),
    ("x = cudnnDataType_t(2)", "x = miopenDataType_t(miopenHalf)"),
    ("x = (cudnnDataType_t)(b ? 0 : 2)", "x = (miopenDataType_t)(b ? miopenFloat : miopenHalf)"),
    ("cudnnSetActivationDescriptor(a, b ? 1 : CUDNN_ACTIVATION_TANH, 1, 0)", f"{HELPER}(a, b ? miopenActivationRELU : miopenActivationTANH, DUALDNN_PORT_PROPAGATE_NAN, 0)"),
    ("cudnnConvolutionFwdAlgo_t all[] = {(cudnnConvolutionFwdAlgo_t)0}", "miopenConvFwdAlgorithm_t all[] = {(miopenConvFwdAlgorithm_t)miopenConvolutionFwdAlgoImplicitGEMM}"),
]  # fmt: skip
IN_FILES = [
    ("#define HALF ((cudnnDataType_t)2)\n", "#define HALF ((miopenDataType_t)miopenHalf)\n"),
    ("#define SET(a) cudnnSetActivationDescriptor(a, 1, \\\n 0, 0.0)\n", f"#define SET(a) {HELPER}(a, miopenActivationRELU, \\\n DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0)\n"),
    ("void g(cudnnDataType_t t = (cudnnDataType_t)2);", "void g(miopenDataType_t t = (miopenDataType_t)miopenHalf);"),
    ("template <cudnnDataType_t T = CUDNN_DATA_HALF> struct Of {}; Of<(cudnnDataType_t)2> of;", "template <miopenDataType_t T = miopenHalf> struct Of {}; Of<(miopenDataType_t)miopenHalf> of;"),
]  # fmt: skip
# C takes these without a cast; t, all, p and s have types of cuDNN.
IN_C = [
    ("t = 2", "t = miopenHalf"),
    ("*p = 2", "*p = miopenHalf"),
    ("all[1] = 2", "all[1] = miopenHalf"),
    ("s->type = 2", "s->type = miopenHalf"),
    ("struct S other = {.type = 2}", "struct S other = {.type = miopenHalf}"),
    ("cudnnDataType_t u = 2", "miopenDataType_t u = miopenHalf"),
    ("cudnnDataType_t many[] = {0, 2}", "miopenDataType_t many[] = {miopenFloat, miopenHalf}"),
    ("if (t == 2) g()", "if (t == miopenHalf) g()"),
    ("switch (t) { case 2: g(); }", "switch (t) { case miopenHalf: g(); }"),
    ("take(2)", "take(miopenHalf)"),
    ("status = 3", "status = miopenStatusBadParm"),
    ("if (status == 0) g()", "if (status == 0) g()"),
    ("{ int t; t = 2; }", "{ int t; t = 2; }"),
    ("n = 2", "n = 2"),
]
C = """struct S {{ cudnnDataType_t type; int n; }};
void take(cudnnDataType_t x);
cudnnDataType_t of(void) {{ return 2; }}
void f(cudnnDataType_t t, cudnnDataType_t *p, cudnnDataType_t all[2], struct S *s, cudnnStatus_t status, int n) {{
{}; }}
"""


@pytest.mark.parametrize("source, wanted", TRANSLATED)
def test_known_numbers_become_enumerators(source, wanted):
    file = ported(in_function(source))
    assert file.after.decode() == in_function(wanted)
    assert {note.kind for note in file.notes} == {"check"} and not file.left


@pytest.mark.parametrize("source, wanted", IN_FILES)
def test_known_numbers_outside_of_functions(source, wanted):
    file = ported(source)
    assert file.after.decode() == wanted and not file.left


@pytest.mark.parametrize("source, wanted", IN_C)
def test_numbers_of_variables_fields_and_labels(source, wanted):
    file = ported(C.format(source), "file.c")
    text = file.after.decode()
    assert f"\n{wanted}; }}\n" in text and "{ return miopenHalf; }" in text
    assert not file.left


@pytest.mark.parametrize(
    "source, told",
    [
        ("cudnnDataType_t t = (cudnnDataType_t)n", "n is a number of cudnnDataType_t"),
        ("x = static_cast<cudnnDataType_t>(s->anything)", "s->anything is a number"),
        ("cudnnSetActivationDescriptor(a, n, CUDNN_PROPAGATE_NAN, 0)", "n is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, 1 + 1, CUDNN_PROPAGATE_NAN, 0)", "1 + 1 is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, MODE, CUDNN_PROPAGATE_NAN, 0)", "MODE is a number of cudnnActivationMode_t"),
        ("cudnnSetActivationDescriptor(a, 77, CUDNN_PROPAGATE_NAN, 0)", "the number 77 is no cudnnActivationMode_t"),
        ("x = (cudnnStatus_t)8", "CUDNN_STATUS_EXECUTION_FAILED, which has no counterpart"),
        ("y = table[CUDNN_DATA_FLOAT]", "CUDNN_DATA_FLOAT stands for its number"),
        ("y = CUDNN_DATA_FLOAT + 1", "CUDNN_DATA_FLOAT stands for its number"),
        ("cudnnConvolutionMode_t m = b ? CUDNN_CROSS_CORRELATION : CUDNN_CONVOLUTION", "CUDNN_CONVOLUTION has no counterpart"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_left_to_a_person(tmp_path, source, told):
    """The note is printed, and the exit status is 1."""
    text = "#define MODE 1\n" + in_function(source, "int n")
    assert any(told in str(left) for left in ported(text).left)
    path = tmp_path / "client.cu"
    path.write_text(text)
    assert command_line.main(["port", "--check", str(path)]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, b ? CUDNN_CROSS_CORRELATION : CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT)",
        "cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, 0, 0)",
        "cudnnSetTensor4dDescriptor(d, 1, 0, 1, 2, 3, 4)",
        "cudnnSetTensor4dDescriptor(d, (cudnnTensorFormat_t)1, CUDNN_DATA_FLOAT, 1, 2, 3, 4)",
    ],
)
def test_what_mi_open_refuses_is_seen_in_every_value(source):
    """One arm of a conditional, or a number, is enough to leave the call as it was."""
    file = ported(in_function(source))
    assert file.after.decode() == in_function(source) and len(file.left) == 1


def test_numbers_of_a_call_that_is_left_stay():
    source = in_function("cudnnSetTensor4dDescriptor(d, 1, (cudnnDataType_t)0, 1, 2, 3, 4)")
    assert ported(source).after.decode() == source


def test_porting_twice_changes_nothing():
    once = ported(C.format("t = 2"), "file.c").after.decode()
    assert ported(once, "file.c").after.decode() == once


def test_every_enumerator_has_its_number():
    for kind, members in ENUMERATIONS.items():
        for member in members:
            assert integers.enumerator_of(kind, member.value) == member.name


@pytest.mark.parametrize(
    "source, wanted, left",
    [
        ("cudnn.cudnnSetActivationDescriptor(a, 1, cudnn.CUDNN_PROPAGATE_NAN, 0.0)", "(a, miopen.miopenActivationRELU, ", False),
        ("t = cudnn.cudnnDataType_t(2)", "t = miopen.miopenDataType_t(miopen.miopenHalf)", False),
        ("t = cudnn.cudnnDataType_t(n)", "t = miopen.miopenDataType_t(n)", True),
        ("cudnn.cudnnSetTensor4dDescriptor(d, 1 if b else 0, 0, 1, 2, 3, 4)", "(d, 1 if b else 0, 0,", True),
        ("cudnn.cudnnSetActivationDescriptor(a, 77, cudnn.CUDNN_PROPAGATE_NAN, 0.0)", "(a, 77, ", True),
    ],
)  # fmt: skip
def test_python_clients(source, wanted, left):
    file = port_python("client.py", f"from dualdnn.api import cudnn\n{source}\n".encode(), forms.table())
    assert wanted in file.after.decode() and bool(file.left) == left
