"""Test the pages of functions and `dualdnn show`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from dualdnn.api.document import functions
from dualdnn.api.document.errata import errata
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.conformance.calls.caller import function_of
from dualdnn.conformance.command_line import main
from dualdnn.conformance.differences import DIFFERENCES
from dualdnn.conformance.pages import functions as pages
from dualdnn.conformance.pages.evidence import evidence
from dualdnn.reference import implemented

ROOT = Path(__file__).parents[2]
CITED = re.compile(r"docs/errata\.md, (?:[DM]\d{3}(?:, | and | to )?)+|docs/errata\.md, V-[a-z0-9-]+")
BOTH = {**functions(), **miopen_functions()}
page = cache(pages.page)


def test_every_function_has_a_page_with_its_parameters_and_an_example():
    assert len(BOTH) == 258 + 53
    for name, function in BOTH.items():
        text = page(name)
        assert text.startswith(f"# {name}\n") and f" {name}(" in text and "## Example\n" in text, name
        assert not re.search(r"\w\*|\] \w", text.partition("In Python:")[0]), name  # Pointers and arrays are as in C.
        assert all(f"| `{p.name}` | {p.direction} | {p.memory} |" in text for p in function.parameters), name


def test_a_page_says_how_results_are_judged():
    """Samples of every operation give the rows; the reserve space of an earlier call leaves nothing to bound."""
    assert "| ConvolutionForward-GEMM | `y` | FLOAT | FLOAT | " in page("cudnnConvolutionForward")
    assert re.search(
        r"\| ConvolutionForward-FFT \| `y` \| .* \| none, the worst case alone \|", page("cudnnConvolutionForward")
    )
    assert "| ScaleTensor | `y` | FLOAT | FLOAT | 0 | rounded once |" in page("cudnnScaleTensor")
    computing = {function_of(kind) for kind in implemented()} & pages.subjects().keys()  # Other tests add operations.

    def without(section):
        return {name for name in computing if f"## {section}\n" not in page(name)}

    assert without("Tolerance") == {"cudnnMultiHeadAttnBackwardWeights", "cudnnRNNBackwardWeights_v8"}
    others = {"cudnnFusedOpsExecute", "cudnnReorderFilterAndBias", "cudnnSetDropoutDescriptor"}
    assert without("Formula") == others | {"cudnnBackendExecute"} & computing
    assert without("Solvers and speed") == set()
    assert "drawn layers, 20" in page("cudnnRNNBackwardData_v8")  # The operation has another name.


def test_every_clause_stands_on_one_page():
    rows = [row for name in pages.subjects() for row in re.findall(r"^\| c\d+[a-z]? \| .*", page(name), re.M)]
    assert len(rows) == len(evidence())
    assert all(one.clause.text.replace("|", "\\|") in "\n".join(rows) for one in list(evidence().values())[::50])


def test_the_index_of_the_site_names_the_page_of_every_library():
    """The build of the site fails if a page is missing from every table of contents."""
    index = (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^made/(\w+)$", index, re.MULTILINE)) >= set(pages.LIBRARIES)


def test_every_formula_belongs_to_functions_that_exist():
    named = [name for entry in pages._formulas().values() for name in entry["functions"]]
    assert set(named) <= set(BOTH) and len(named) == len(set(named))


def test_a_cell_keeps_bars_and_line_breaks_out_of_its_table():
    assert pages.table(("a|b",), [("c\nd",)]) == "| a\\|b |\n|---|\n| c d |"


@pytest.mark.parametrize(
    "name", ["D241", "V-log-channels", "cudnnPoolingForward/c02", "cudnnPoolingForward", "miopenOpTensor"]
)
def test_show_prints_what_is_known(capsys, name):
    assert main(["show", name]) == 0
    assert name in capsys.readouterr().out


def test_show_refuses_an_unknown_name_and_says_what_is_near(capsys):
    assert main(["show", "cudnnPoolingForwrd"]) == 2
    assert "near it: cudnnPoolingForward" in capsys.readouterr().err


def test_errata_that_the_tree_cites_exist():
    known = {i for one in errata() for i in one.ids} | {one.id for one in DIFFERENCES}
    texts = [
        p for folder in ("api", "reference", "accelerated", "conformance", "docs") for p in (ROOT / folder).rglob("*.*")
    ]
    cited = {
        (path.relative_to(ROOT).as_posix(), one)
        for path in texts
        if path.suffix in (".py", ".md", ".cu", ".c", ".h")
        for found in CITED.findall(path.read_text("utf-8"))
        for one in re.findall(r"[DM]\d{3}|V-[a-z0-9-]+", found)
    }
    assert len(cited) > 100
    assert [c for c in sorted(cited) if c[1] not in known] == []


def test_a_reader_that_stops_early_causes_no_message():
    """`dualdnn show NAME | head -1` ends like other commands whose output nobody reads."""
    shown = subprocess.Popen(
        [sys.executable, "-m", "dualdnn.conformance", "show", "cudnnPoolingForward"], stdout=-1, stderr=-1
    )
    shown.stdout.close()
    assert shown.stderr.read() == b"" and shown.wait() == 128 + signal.SIGPIPE
