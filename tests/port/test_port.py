"""Test the sources that ``dualdnn port`` writes and refuses; test_port_clients.py runs ported programs."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tree_sitter", reason="the porting tool needs tree-sitter: pip install 'dualdnn[port]'")
from dualdnn.api.document import functions
from dualdnn.conformance import command_line
from dualdnn.conformance.port import forms
from dualdnn.conformance.port.edits import Edits
from dualdnn.conformance.port.headers import write_headers
from dualdnn.conformance.port.python_clients import port_python
from dualdnn.conformance.port.reached import port_c
from dualdnn.conformance.port.verdicts import HELPED, LEFT, REWRITTEN

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests/port_clients"
SET4D = "cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 3, 4)"


def ported(text, path="file.cu", level="guide"):
    text = text if isinstance(text, bytes) else text.encode()
    return port_c(path, text, forms.table(level))


def inside(statement):
    return f"void f() {{ {statement}; }}\n"


def after(statement, **kwargs):
    return ported(inside(statement), **kwargs).after.decode().removeprefix("void f() { ").removesuffix("; }\n")


def command(*arguments):
    return command_line.main(["port", *map(str, arguments)])


# The table


def test_no_parameter_is_lost_and_every_one_is_filled():
    assert list(forms.problems()) == []


@pytest.mark.parametrize(
    "name, change, complaint",
    [
        ("cudnnSetTensor4dDescriptor", {"drop": []}, "lost ['format']"),
        ("cudnnSetTensor4dDescriptor", {"drop": ["format", "n"]}, None),
        ("cudnnSetLRNDescriptor", {"constant": {}}, "invented ['mode']"),
        ("cudnnSetConvolution2dDescriptor", {"from": {}}, "invented"),
        ("cudnnActivationForward", {"from": {"activDesc": "xDesc"}}, "lost ['activationDesc']"),
        ("cudnnPoolingForward", {"helper": False}, "no helper"),
        ("cudnnSetTensor", {"from": {"alpha": "yDesc"}}, "yDesc is"),
    ],
)
def test_a_wrong_table_is_noticed(monkeypatch, name, change, complaint):
    data = json.loads(json.dumps(forms._data()))
    data["forms"][name][0].update(change)
    monkeypatch.setattr(forms, "_data", lambda: data)
    assert any(complaint in problem for problem in forms.problems()) if complaint else True


@pytest.mark.parametrize(
    "name, change, complaint",
    [
        ("cudnnDropoutForward", {"from": {"xDesc": "xdesc", "yDesc": "ydesc"}}, "invented ['noise_shape']"),
        ("cudnnSetPoolingNdDescriptor", {"drop": []}, "lost ['maxpoolingNanOpt']"),
        ("cudnnSoftmaxForward", {"signature": "miopenHandle_t handle, const void* alpha"}, "lost"),
        ("cudnnReduceTensor", {"from": {"A": "aDesc", "aDesc": "A"}}, "aDesc is"),
        ("cudnnSetConvolutionNdDescriptor", {"helper": False}, "no helper"),
    ],
)
def test_a_wrong_table_of_today_is_noticed(monkeypatch, name, change, complaint):
    data = json.loads(json.dumps(forms.today()))
    data["functions"][name].update(change)
    monkeypatch.setattr(forms, "today", lambda: data)
    assert any(complaint in problem for problem in forms.problems()), list(forms.problems())


def test_each_function_of_the_guide_is_reached_and_each_row_has_its_clause():
    rows = {form.row for many in forms.table().forms.values() for form in many}
    assert rows >= set(range(1, 56)) - {37, 51}  # Rows 37 and 51 have no function of cuDNN.


def test_other_factors_never_reach_a_call_that_refuses_them():
    """MIOpen takes alpha 1 and beta 0 only, but dlib's softmax gradient chooses its factors at run time."""
    clauses = map(json.loads, (ROOT / "conformance/clauses/miopen.jsonl").read_text().splitlines())
    refusing = {clause["subject"] for clause in clauses if clause["text"].startswith("alpha other than 1 or beta")}
    direct = [form for many in forms.table().forms.values() for form in many if form.miopen in refusing]
    assert {form.miopen for form in direct} >= {"miopenSoftmaxBackward", "miopenActivationForward"}
    for form in direct:
        assert form.when.get("alpha") == forms.ONE and form.when.get("beta") == forms.ZERO, form.cudnn


def test_the_python_helpers_take_what_the_calls_take(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "conformance/port")
    import dualdnn_port_miopen as helpers

    for name, (form, *_) in forms.table().forms.items():
        if form.helper and name in functions():
            parameters = list(inspect.signature(getattr(helpers, form.helper)).parameters.values())
            if not any(p.kind == p.VAR_POSITIONAL for p in parameters):
                assert len(parameters) == len(functions()[name].arguments), name


def test_the_gradient_of_lrn_is_that_of_cudnn_whatever_y_holds(monkeypatch):
    """MIOpen reads y, cuDNN only x, so the helper calls forward to compute the y that MIOpen reads."""
    monkeypatch.syspath_prepend(ROOT / "conformance/port")
    import dualdnn_port_miopen as helpers
    from dualdnn.api import miopen

    handle, d, descriptor = (
        miopen.miopenCreate(),
        miopen.miopenCreateTensorDescriptor(),
        miopen.miopenCreateLRNDescriptor(),
    )
    miopen.miopenSet4dTensorDescriptor(d, miopen.miopenFloat, 1, 3, 2, 2)
    miopen.miopenSetLRNDescriptor(descriptor, miopen.miopenLRNCrossChannel, 3, 0.5, 0.75, 2.0)
    x, dy = (handle.to_device(np.arange(12, dtype=np.float32) * scale) for scale in (1.0, -0.5))
    results = []
    for y in (np.zeros(12, np.float32), np.full(12, 9, np.float32)):
        dx = handle.allocate(48)
        operands = (d, handle.to_device(y), d, dy, d, x, 0.0, d, dx)
        helpers.dualdnnPortLRNCrossChannelBackward(handle, descriptor, 0, 1.0, *operands)
        results.append(dx.to_host(np.float32, -1))
    np.testing.assert_array_equal(*results)


# Calls


@pytest.mark.parametrize(
    "source, wanted",
    [
        (SET4D, "miopenSet4dTensorDescriptor(d, miopenFloat, 1, 2, 3, 4)"),
        ("::" + SET4D, "::miopenSet4dTensorDescriptor(d, miopenFloat, 1, 2, 3, 4)"),
        (f"CHECK( {SET4D} )", "CHECK( miopenSet4dTensorDescriptor(d, miopenFloat, 1, 2, 3, 4) )"),
        ("cudnnSetTensor4dDescriptor(d, fmt, CUDNN_DATA_FLOAT, 1, 2, 3, 4)", "dualdnnPortSetTensor4dDescriptor(d, fmt, miopenFloat, 1, 2, 3, 4)"),
        ("cudnnSetConvolution2dDescriptor(c, 1, 2, 3, 4, 5, 6, CUDNN_CROSS_CORRELATION)", "miopenInitConvolutionDescriptor(c, miopenConvolution, 1, 2, 3, 4, 5, 6)"),
        ("cudnnGetConvolutionBackwardFilterWorkspaceSize(h, x, dy, c, dw, a, &s)", "miopenConvolutionBackwardWeightsGetWorkSpaceSize(h, dy, x, c, dw, &s)"),
        ("cudnnGetConvolutionForwardWorkspaceSize(h, x /* input */, w, c, y, a, &s)", "dualdnnPortGetConvolutionForwardWorkspaceSize(h, x /* input */, w, c, y, a, &s)"),
        ("cudnnSetPooling2dDescriptor(p, CUDNN_POOLING_MAX,\n  n, 1, 2, 3, 4, 5, 6)", "miopenSet2dPoolingDescriptor(p, miopenPoolingMax,\n  1, 2, 3, 4, 5, 6)"),
        ("cudnnSetLRNDescriptor(l, 5, a, b, k)", "miopenSetLRNDescriptor(l, miopenLRNCrossChannel, 5, a, b, k)"),
        ("auto f = &cudnnConvolutionForward", "auto f = &dualdnnPortConvolutionForward"),
        ("f(cudnnDestroyTensorDescriptor)", "f(miopenDestroyTensorDescriptor)"),
        ('log("cudnnCreate failed")', 'log("cudnnCreate failed")'),
        ("cudnn_handle(); my_cudnnCreate(); cudnnX; CUDNN", "cudnn_handle(); my_cudnnCreate(); cudnnX; CUDNN"),
        ("if (s == CUDNN_STATUS_BAD_PARAM) return", "if (s == miopenStatusBadParm) return"),
        ("x = CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING", "x = DUALDNN_PORT_FWD_ALGO_OF_FIND"),
    ],
)  # fmt: skip
def test_each_call_is_ported_as_its_table_says(source, wanted):
    assert after(source) == wanted
    assert after(wanted) == wanted  # A second port changes nothing.


SOFTMAX = "cudnnSoftmaxForward(h, CUDNN_SOFTMAX_{}, m, &a, x, X, &b, y, Y)"


@pytest.mark.parametrize(
    "source, reason",
    [
        (SET4D.replace("NCHW", "NHWC"), "NCHW only"),
        (SET4D.replace("FLOAT", "HALF"), "FLOAT only"),
        (
            "cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT)",
            "flip the filter",
        ),
        (SOFTMAX.format("LOG"), "logarithm"),
        ("cudnnSetOpTensorDescriptor(o, CUDNN_OP_TENSOR_SQRT, CUDNN_DATA_FLOAT, n)", "no such operation"),
        ("cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, 1, 2)", "4 arguments, the document has 7"),
        ("cudnnSetRNNDescriptor_v8(r, 1, 2)", "no counterpart"),
        ("cudnnDropoutForward(h, d, x, X, y, Y, r, n)", "MIOpen has miopenDropoutForward today"),
        ("cudnnGetLastErrorString(m, 3)", "not in cuDNN 8.0.3"),
    ],
)
def test_a_call_that_cannot_be_ported_is_unchanged_and_has_a_reason(source, reason):
    result = ported(inside(source))
    assert result.after == result.before
    assert [v.verdict for v in result.verdicts] == [LEFT] and reason in result.verdicts[0].message
    assert (result.verdicts[0].line, result.verdicts[0].column) == (1, 12)


@pytest.mark.parametrize(
    "declared, direct",
    [
        ("const float one = 1.0f, zero = 0;", True),
        ("static const float one = 1, zero = 0.f;", True),
        ("float one = 1, zero = 0;", False),  # A variable that is not const may change.
        ("const float one = 1.0f, zero = 0.5f;", False),
        ("const float one = 1, zero = 0; } void g(const float one) {", False),  # A parameter hides it.
        ("const float one = 1, zero = 0; } void g() { float one[2];", False),
        ("", False),
    ],
)
def test_alpha_and_beta_are_proved_or_decided_at_run_time(declared, direct):
    text = f"void f() {{ {declared} cudnnActivationForward(h, a, &one, x, X, &zero, y, Y); }}"
    assert ported(text).verdicts[0].verdict == (REWRITTEN if direct else HELPED)


def test_macros_includes_types_and_case_labels():
    text = """#include <cudnn.h>
#include "cudnn_ops_infer.h"
#define CHECK(x) do { if ((x) != CUDNN_STATUS_SUCCESS) abort(); } while (0) // CUDNN_STATUS_SUCCESS
#define CONV(h, ...) cudnnConvolutionForward(h, __VA_ARGS__)
#define CALL(name) cudnn##name
struct layer { cudnnFilterDescriptor_t w; cudnnConvolutionFwdAlgoPerf_t p; cudnnRNNDescriptor_t r; };
#if CUDNN_MAJOR >= 8 && defined(CUDNN_VERSION)
int g(cudnnPoolingMode_t m) { switch (m) { case CUDNN_POOLING_MAX: return 1; case CUDNN_POOLING_MAX_DETERMINISTIC: return 2; } }
#endif
"""
    result = ported(text)
    assert result.after.decode() == (
        text.replace("<cudnn.h>", '<miopen/miopen.h>\n#include "dualdnn_port_miopen.h"')
        .replace('"cudnn_ops_infer.h"', '<miopen/miopen.h>\n#include "dualdnn_port_miopen.h"')
        .replace("!= CUDNN_STATUS_SUCCESS)", "!= miopenStatusSuccess)")
        .replace("cudnnConvolutionForward(", "dualdnnPortConvolutionForward(")
        .replace("cudnnFilterDescriptor_t", "miopenTensorDescriptor_t")
        .replace("cudnnConvolutionFwdAlgoPerf_t", "dualdnnPortConvolutionFwdAlgoPerf_t")
        .replace("cudnnPoolingMode_t", "miopenPoolingMode_t")
        .replace("CUDNN_POOLING_MAX:", "miopenPoolingMax:")
    )  # fmt: skip
    kinds = {(note.kind, note.message.split()[0]) for note in result.notes}
    assert ("pasting", "cudnn##name") in kinds and ("no counterpart", "cudnnRNNDescriptor_t") in kinds
    assert ("no counterpart", "CUDNN_POOLING_MAX_DETERMINISTIC") in kinds


@pytest.mark.parametrize(
    "source, wanted",
    [
        ("cudnnDropoutForward(h, d, x, X, y, Y, r, n)", "miopenDropoutForward(h, d, x, x, X, y, Y, r, n)"),
        ("cudnnDropoutBackward(h, d, y, DY, x, DX, r, n)", "miopenDropoutBackward(h, d, y, y, DY, x, DX, r, n)"),
        ("cudnnSetDropoutDescriptor(d, h, p, s, n, seed)",
         "miopenSetDropoutDescriptor(d, h, p, s, n, seed, false, false, MIOPEN_RNG_PSEUDO_XORWOW)"),
        ("cudnnReduceTensor(h, r, I, i, W, w, &a, x, X, &b, y, Y)", "miopenReduceTensor(h, r, I, i, W, w, &a, x, X, &b, y, Y)"),
        ("cudnnSetReduceTensorDescriptor(r, CUDNN_REDUCE_TENSOR_NORM2, t, CUDNN_PROPAGATE_NAN, i, CUDNN_64BIT_INDICES)",
         "miopenSetReduceTensorDescriptor(r, MIOPEN_REDUCE_TENSOR_NORM2, t, MIOPEN_PROPAGATE_NAN, i, MIOPEN_64BIT_INDICES)"),
        ("cudnnSetConvolutionNdDescriptor(c, 3, p, s, d, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)",
         "miopenInitConvolutionNdDescriptor(c, 3, p, s, d, miopenConvolution)"),
        ("cudnnSetConvolutionNdDescriptor(c, 3, p, s, d, mode, CUDNN_DATA_FLOAT)",
         "dualdnnPortSetConvolutionNdDescriptor(c, 3, p, s, d, mode, miopenFloat)"),
        ("cudnnSetPoolingNdDescriptor(p, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 3, w, q, s)",
         "miopenSetNdPoolingDescriptor(p, miopenPoolingMax, 3, w, q, s)"),
    ],
)  # fmt: skip
def test_calls_that_mi_open_has_got_since_the_guide(source, wanted):
    assert after(source, level="today") == wanted


@pytest.mark.parametrize(
    "source, reason",
    [
        (
            "cudnnRNNForwardInference(h)",
            "MIOpen has miopenRNNForwardInference today, but its weights lie in another order",
        ),
        ("cudnnCTCLoss(h)", "but its labels"),
        ("cudnnBackendFinalize(d)", "MIOpen has miopenBackendFinalize today, but it has other attributes"),
        ("cudnnGetPoolingNdDescriptor(p)", "no rule for NaN"),
        (
            "cudnnSetConvolutionNdDescriptor(c, 3, p, s, d, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT)",
            "only cross-correlates",
        ),
        ("cudnnSpatialTfSamplerForward(h)", "no counterpart: port it by hand"),
    ],
)
def test_calls_that_look_alike_today_are_left_with_the_difference(source, reason):
    result = ported(inside(source), level="today")
    assert result.after == result.before and reason in result.verdicts[0].message


def test_the_level_of_today_knows_more_calls():
    call = "cudnnSetConvolutionGroupCount(c, groups)"
    assert after(call) == "dualdnnPortSetConvolutionGroupCount(c, groups)"
    assert after(call, level="today") == "miopenSetConvolutionGroupCount(c, groups)"
    assert after(SOFTMAX.format("FAST"), level="today").startswith(
        "miopenSoftmaxForward_V2(h, &a, x, X, &b, y, Y, MIOPEN_SOFTMAX_FAST, m)"
    )


# Code that cannot be read


@pytest.mark.parametrize("text", [
    "void f() {\n cudnnCreate(\n#if A\n &h\n#else\n h\n#endif\n);\n}\n", "void f(){ cudnnDestroy(\n#if A\n h,\n#else\n g,\n#endif\n i); }\n",
])  # fmt: skip
def test_a_directive_among_the_arguments_is_the_reason(text):
    assert [v.message[:35] for v in ported(text).verdicts] == ["there is a preprocessor directive i"]


@pytest.mark.parametrize(
    "text",
    [
        "void f() {\n cudnnSetTensor4dDescriptor(d,\n#if NEW\n CUDNN_TENSOR_NHWC,\n#else\n CUDNN_TENSOR_NCHW,\n#endif\n CUDNN_DATA_FLOAT, 1, 2, 3, 4);\n}\n",
        "void f() {\n cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, \n",
        "void f() { cudnnAddTensor(h, &a, , A, &b, c, C; }\n",
        "cudnnStatus_t cudnnCreate(cudnnHandle_t *h) { return CUDNN_STATUS_SUCCESS; }\n",
    ],
)
def test_a_call_that_cannot_be_read_is_not_half_written(text):
    result = ported(text)
    assert [v.verdict for v in result.verdicts] == [LEFT]
    name = result.verdicts[0].function
    assert result.after.count(name.encode()) == 1 and b"miopen" + name[5:].encode() not in result.after


def test_nested_calls_of_a_left_call_are_left_too():
    text = inside(f"cudnnRNNForwardTraining(h, {SET4D}, CUDNN_STATUS_SUCCESS)")
    result = ported(text)
    assert result.after == result.before and [v.verdict for v in result.verdicts] == [LEFT, LEFT]


@pytest.mark.parametrize("encode", [lambda s: s.encode("latin-1"), lambda s: s.replace("\n", "\r\n").encode("latin-1")])
def test_bytes_around_the_calls_stay(encode):
    text = encode(
        f"// caf\xe9 \t \n{inside(SET4D)}\n\n  \tint \xe9; void g() {{ f<\xe9>(1); f/*\xe9*/[0](2); (\xe9)3; }}"
    )
    result = ported(text)
    assert result.after == text.replace(SET4D.encode(), b"miopenSet4dTensorDescriptor(d, miopenFloat, 1, 2, 3, 4)")


def test_deep_nesting_is_ported():
    text = "int f() { return " + "(" * 20_000 + "1" + ")" * 20_000 + f"; {SET4D}; }}"
    assert ported(text).count(REWRITTEN) + ported(text).count(LEFT) == 1


def test_edits_inside_moved_ranges():
    edits = Edits(b"f(a, b, c)")
    edits.replace(0, 1, b"g")
    edits.replace(1, 10, b"(", (8, 9), b", ", (2, 3), b")")
    edits.replace(2, 3, b"A")
    edits.replace(10, 10, b";")
    assert edits.apply() == b"g(c, A);"


# Files


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cu").write_text(f"#include <cudnn.h>\n{inside(SET4D)}")
    (tmp_path / "src/b.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "src/notes.txt").write_text("cudnnCreate")
    return tmp_path


def test_the_default_prints_a_diff_and_writes_nothing(tree, capfd):
    assert command(tree / "src") == 0
    out, err = capfd.readouterr()
    assert "+void f() { miopenSet4dTensorDescriptor" in out and "1 calls rewritten" in err
    assert sorted(path.name for path in tree.rglob("*")) == ["a.cu", "b.c", "notes.txt", "src"]


def test_porting_in_place_a_second_time_changes_nothing(tree):
    assert command(tree / "src", "--in-place") == 0
    once = {path.name: path.read_bytes() for path in (tree / "src").iterdir()}
    assert b"miopen/miopen.h" in once["a.cu"] and "dualdnn_port_miopen.h" in once
    assert command(tree / "src", "--in-place") == 0
    assert {path.name: path.read_bytes() for path in (tree / "src").iterdir()} == once


def test_the_clients_ported_twice(tmp_path):
    assert command(CLIENTS, "--out", tmp_path / "once", "--jobs", 1) == 0
    assert command(tmp_path / "once", "--out", tmp_path / "twice", "--jobs", 1) == 0
    for path in (tmp_path / "once").iterdir():
        if path.name != "dualdnn_port_miopen.h":
            assert (tmp_path / "twice" / path.name).read_bytes() == path.read_bytes(), path.name


def test_check_lists_verdicts_and_says_by_status_what_is_left(tree, capsys):
    (tree / "src/c.cpp").write_text(inside(SET4D.replace("NCHW", "NHWC")))
    assert command(tree / "src", "--check") == 1
    out = capsys.readouterr().out
    assert re.search(
        r"a\.cu:2:12: rewritten \[guide/row06\]: cudnnSetTensor4dDescriptor -> miopenSet4dTensorDescriptor", out
    )
    assert re.search(r"c\.cpp:1:12: left as it was \[guide/row06\].*NCHW only", out) and "@@" not in out


def test_reports_count_verdicts_and_escape_sources(tree):
    (tree / "src/c.cpp").write_text(inside(SET4D.replace("NCHW", "NHWC") + '; log("<script>cudnnCreate")'))
    assert command(tree / "src", "--check", "--report", tree / "port.json") == 1
    assert command(tree / "src", "--check", "--report", tree / "port.html") == 1
    document = json.loads((tree / "port.json").read_text())
    assert document["totals"] == {REWRITTEN: 1, HELPED: 0, LEFT: 1} and document["files_read"] == 3
    page = (tree / "port.html").read_text()
    assert "NCHW only" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"cudnnDataType_t t = " + b"(" * 3000 + b"2" + b")" * 3000, "nests expressions too deeply"),
        (b"\x7fELF\0cudnnCreate", "is binary"),
        ("cudnnCreate".encode("utf-16"), "is UTF-16: convert it"),
        (b"#include <cudnn.h>\rint cudnnX;\r", "ends its lines with CR alone: convert it"),
    ],
)
def test_a_file_that_is_not_text_is_named_and_unchanged(tree, capsys, content, message):
    (tree / "src/odd.c").write_bytes(content)
    assert command(tree / "src", "--in-place") == 2
    assert f"odd.c: not looked at: it {message}" in capsys.readouterr().err
    assert (tree / "src/odd.c").read_bytes() == content and b"miopen" in (tree / "src/a.cu").read_bytes()


def test_a_pipe_in_a_folder_is_not_waited_for(tree):
    os.mkfifo(tree / "src/pipe.c")
    assert command(tree / "src", "--in-place") != 2


def test_a_read_only_target_stops_everything(tree, capsys):
    (tree / "src/z.cu").write_text(inside(SET4D))
    (tree / "src/z.cu").chmod(0o444)
    before = {path: path.read_bytes() for path in (tree / "src").iterdir()}
    assert command(tree / "src", "--in-place") == 2
    assert "z.cu is read-only: nothing was written" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tree / "src").iterdir()} == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["absent"], "does not exist"),
        (["src/notes.txt"], "is not a source of"),
        (["empty"], "empty has no source"),
        (["src", "--out", "src"], "where"),
        (["src", "--jobs", "-1"], "--jobs is -1"),
        (["src", "--report", "port.txt"], "must end in .json or .html"),
        (["src", "other", "--out", "new"], "several files would become"),
    ],
)
def test_wrong_arguments(tree, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tree)
    shutil.copytree("src", "other")
    Path("empty").mkdir()
    assert command(*arguments) == 2
    assert message in capsys.readouterr().err


def test_links_and_hidden_folders_are_not_followed(tree):
    (tree / "src/link.cu").symlink_to("a.cu")
    (tree / "src/.git").mkdir()
    (tree / "src/.git/x.c").write_text(inside(SET4D))
    assert command(tree / "src", "--in-place") == 0
    assert (tree / "src/link.cu").is_symlink() and b"cudnn" in (tree / "src/.git/x.c").read_bytes()


def test_a_large_tree_in_parallel(tmp_path, capfd):
    for folder in range(20):
        (tmp_path / f"src/{folder}").mkdir(parents=True)
        for file in range(100):
            (tmp_path / f"src/{folder}/{file}.c").write_text("int x;\n" if file % 10 else inside(SET4D))
    (tmp_path / "src/own.h").write_text("#define cudnnErrCheck(x) (x)\n")
    (tmp_path / "src/use.c").write_text(inside("cudnnErrCheck(cudnnDestroy(h))"))
    assert command(tmp_path / "src", "--out", tmp_path / "new", "--jobs", 2) == 0
    assert "200 calls rewritten, 1 calls rewritten through a helper, 0 calls left" in capfd.readouterr().err
    assert len(list((tmp_path / "new").rglob("*.c"))) == 2001
    assert (tmp_path / "new/use.c").read_text() == inside("cudnnErrCheck(dualdnnPortDestroy(h))")


# Compiled: every form


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs Linux and g++")
@pytest.mark.parametrize("suffix", [".c", ".cpp"])
@pytest.mark.parametrize("level", forms.LEVELS)
def test_every_form_compiles_against_the_header_of_its_level(tmp_path, level, suffix):
    """Each form compiles with variables of the documented types, and with literals where a literal selects the form."""
    lines = ["#include <cudnn.h>"]
    for name, many in forms.table(level).forms.items():
        for number, form in enumerate(many):
            known = {p.name: p.ctype for p in functions()[name].parameters} if name in functions() else {}
            variables = [f"{known.get(p) or _type(name, p)} {p}".replace("[] ", " *") for p in form.parameters]
            call = f"{name}({', '.join(form.parameters)})"
            lines.append(f"void f_{name}_{number}({', '.join(variables)}) {{ (void){call};")
            literals = {p: w[0] for p, w in form.when.items() if isinstance(w, list)}
            if literals:
                lines.append(f"(void){name}({', '.join(literals.get(p, p) for p in form.parameters)});")
                lines += [f"(void){p};" for p in literals]
            lines.append("}")
    source = tmp_path / "src" / f"forms{suffix}"
    source.parent.mkdir()
    source.write_text("\n".join(lines))
    write_headers(tmp_path, level)
    assert command(tmp_path / "src", "--out", tmp_path / "out", "--miopen-level", level) == 0
    compiler = ["gcc", "-std=c99"] if suffix == ".c" else ["g++", "-std=c++11"]
    hip = ["-DDUALDNN_PORT_ALLOCATE(p,n)=((void)(n),*(p)=0,1)", "-DDUALDNN_PORT_FREE(p)=((void)(p))"]
    # The document and the guide differ in const; the C++ build fails where that matters.
    warnings = ["-Wall", "-Wextra", "-Werror", *(["-Wno-discarded-qualifiers"] if suffix == ".c" else [])]
    built = subprocess.run([*compiler, *warnings, "-Wno-unused-parameter", *hip, f"-I{tmp_path}", "-c", str(tmp_path / "out" / source.name),
                            "-o", str(tmp_path / "forms.o")], capture_output=True, text=True)  # fmt: skip
    assert built.returncode == 0, built.stderr


def _type(function, parameter):
    """Return the type of a parameter that only functions removed before 8.0.3 have."""
    direction = re.search(r"Forward|BackwardData|BackwardFilter", function)
    short = {"Forward": "Fwd", "BackwardData": "BwdData", "BackwardFilter": "BwdFilter"}.get(
        direction[0] if direction else "", ""
    )
    old = {"preference": f"cudnnConvolution{short}Preference_t", "memoryLimitInBytes": "size_t",
           "algo": f"cudnnConvolution{short}Algo_t *", "handle": "cudnnHandle_t", "convDesc": "cudnnConvolutionDescriptor_t",
           "wDesc": "cudnnFilterDescriptor_t", "dwDesc": "cudnnFilterDescriptor_t"}  # fmt: skip
    if parameter in ("upscalex", "upscaley"):
        return "int *" if "Get" in function else "int"
    return old.get(parameter, "cudnnTensorDescriptor_t")


# Python


def python(text, path="client.py"):
    return port_python(path, text.encode(), forms.table())


def test_python_clients():
    result = python(
        "from dualdnn.api import cudnn, miopen_like\n"
        "d = cudnn.cudnnCreateTensorDescriptor()\n"
        "cudnn.cudnnSetTensor4dDescriptor(d, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, *dims)\n"
        "cudnn.cudnnAddTensor(h, 1.0, a, A, 1.0, c, C)  # cudnnAddTensor\n"
        "cudnn.cudnnRNNForward(h)\n"
        "except_ = cudnn.CudnnError\n"
        "f(cudnn.cudnnDestroyTensorDescriptor)\n"
    )
    assert result.after.decode() == (
        "from dualdnn.api import miopen, miopen_like\nimport dualdnn_port_miopen\n"
        "d = miopen.miopenCreateTensorDescriptor()\n"
        "dualdnn_port_miopen.dualdnnPortSetTensor4dDescriptor(d, dualdnn_port_miopen.DUALDNN_PORT_TENSOR_NCHW, miopen.miopenFloat, *dims)\n"
        "dualdnn_port_miopen.dualdnnPortAddTensor(h, 1.0, a, A, 1.0, c, C)  # cudnnAddTensor\n"
        "cudnn.cudnnRNNForward(h)\n"
        "except_ = miopen.MiopenError\n"
        "f(miopen.miopenDestroyTensorDescriptor)\n"
    )
    assert [v.verdict for v in result.verdicts] == [REWRITTEN, HELPED, HELPED, LEFT]
    again = python(result.after.decode())
    assert again.after == again.before


def test_other_python_is_not_touched():
    text = "import cudnn\ncudnn.cudnnCreate()\n'cudnnCreate'\n"
    assert python(text).after.decode() == text


PROBABILITIES = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from network import Network
from data import split_digits
import classify
weights = dict(np.load(sys.argv[2]))
api = getattr(classify, "cudnn", None) or classify.miopen
create = getattr(api, "cudnnCreate", None) or api.miopenCreate
images = split_digits()[1].images[:20]
network = Network(create(backend="reference"), weights, 20, classify.MATH_TYPES["fma"])
np.save(sys.argv[3], network.probabilities(images))
"""


LOSSES = """
import sys
sys.path.insert(0, sys.argv[1])
import learn
library = getattr(learn, "miopen", None) or learn.cudnn
create = getattr(library, "miopenCreate", None) or library.cudnnCreate
training, _ = learn.split_digits()
print(learn.Training(create(backend="reference"), learn.EPOCHS, dropped=0.0).steps(training, 0, 3))
"""


@pytest.mark.long
def test_the_digits_example_says_the_same_after_the_port(tmp_path, capsys):
    """Inference and training give the same numbers; training runs without dropout, which the guide lacks."""
    pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'dualdnn[examples]'")
    digits = ROOT / "examples/digits"
    command(digits, "--out", tmp_path / "digits")
    left = [line for line in "".join(capsys.readouterr()).splitlines() if "left as it was [" in line]
    assert left and all("layers.py" in line and "Dropout" in line for line in left)
    losses = [
        subprocess.run([sys.executable, "-c", LOSSES, str(folder)], capture_output=True, text=True, check=True).stdout
        for folder in (digits, tmp_path / "digits")
    ]
    assert losses[0] == losses[1] and losses[0].startswith("[2.98560")
    assert (tmp_path / "digits/train.py").read_bytes() == (digits / "train.py").read_bytes()  # It calls no cuDNN.
    found = []
    for number, folder in enumerate((digits, tmp_path / "digits")):
        target = tmp_path / f"{number}.npy"
        shown = subprocess.run([sys.executable, "-c", PROBABILITIES, str(folder), str(digits / "weights.npz"), str(target)], capture_output=True, text=True)  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        found.append(np.load(target))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
