"""Write the page of a function or type, as Markdown."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from dualdnn.api.abi.c_types import RESULTS
from dualdnn.api.abi.header import declaration
from dualdnn.api.document import Parameter, functions
from dualdnn.api.document.errata import Erratum, errata
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.support import convolution, convolution_gradients

from ..differences import DIFFERENCES
from .evidence import Evidence, of_subject
from .examples import example_of
from .speed import solvers_of
from .tolerance import samples_of, tolerances

LIBRARIES = {
    "ops_infer": "Operations, inference", "ops_train": "Operations, training", "cnn_infer": "Convolutions, inference",
    "cnn_train": "Convolutions, training", "adv_infer": "Sequences and attention, inference",
    "adv_train": "Sequences and attention, training", "backend": "Backend graphs", "miopen": "MIOpen porting guide",
    "this_edition": "Levels of reproducibility, of this edition alone",
}  # fmt: skip
COLUMNS = 100  # characters of a line of code that a page shows without scrolling
# function -> rows of its support tables
SUPPORT = {
    "cudnnConvolutionForward": convolution.ROWS,
    "cudnnConvolutionBackwardData": convolution_gradients.DATA_ROWS,
    "cudnnConvolutionBackwardFilter": convolution_gradients.FILTER_ROWS,
}


def subjects() -> dict[str, str]:
    """Return the library of everything that has a page: functions in the document's order, then types."""
    named = {name: f.library for name, f in functions().items()} | {name: "miopen" for name in miopen_functions()}
    return named | {name: found[0].clause.library for name, found in of_subject().items() if name not in named}


def page(name: str) -> str:
    """Return the page of a function or type. Raises KeyError if the documents do not have the name."""
    subjects()[name]
    parts = [f"# {name}", _heading(name), _signature(name), _formula(name), *_clauses(name)]
    parts += [_support(name), _tolerance(name), _errata(name), _differences(name), _speed(name), _example(name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def cell(text: str) -> str:
    """Return the text escaped for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(map(cell, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def titled(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a section with a table, or "" without rows."""
    return f"## {title}\n\n{table(head, rows)}" if rows else ""


def _heading(name: str) -> str:
    found = of_subject().get(name, [])
    known = functions().get(name)
    place = known.section if known else found[0].clause.section if found else ""
    texts = [LIBRARIES[subjects()[name]] + (f", section {place}." if place else ".")]
    if known and known.deprecated:
        texts.append(f"Deprecated: {known.deprecated}.")
    counts = {state: sum(one.state == state for one in found) for state in ("proven", "shown", "not applicable")}
    if found:
        said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        texts.append(f"{len(found)} clauses: {said} ([what these words mean](../evidence.md)).")
    return " ".join(texts)


def _parameters(name: str) -> Sequence[Parameter]:
    known: Any = functions().get(name) or miopen_functions().get(name)
    return known.parameters if known else ()


def _signature(name: str) -> str:
    parameters = _parameters(name)
    if name not in functions() and not parameters:
        return ""  # It is a type.
    returned = RESULTS.get(name, "miopenStatus_t" if name.startswith("miopen") else "cudnnStatus_t")
    declared = ",\n".join(f"    {declaration(p, p.ctype)}" for p in parameters)
    declared = f"\n{declared}" if declared else "void"
    text = f"## Signature\n\n```c\n{returned} {name}({declared});\n```\n\n{_in_python(name)}"
    rows = [(f"`{p.name}`", p.direction, p.memory, "yes" if p.nullable else "no", _length(p)) for p in parameters]
    head = ("parameter", "direction", "memory", "may be NULL", "length or type")
    return f"{text}\n\n{table(head, rows)}" if rows else text


def _in_python(name: str) -> str:
    """Return the call in Python, which returns what C writes to the host."""
    passed = ", ".join(p.name for p in _parameters(name) if not p.is_returned)
    returned = ", ".join(p.name for p in _parameters(name) if p.is_returned)
    call = f"{'miopen' if name.startswith('miopen') else 'cudnn'}.{name}({passed})"
    text = textwrap.fill(f"{returned} = {call}" if returned else call, COLUMNS, subsequent_indent="    ")
    return f"In Python:\n\n```python\n{text}\n```"


def _length(parameter: Parameter) -> str:
    said = f"`{parameter.length.count}` entries" if parameter.length else ""
    return said or (f"type of `{parameter.typed_by}`" if parameter.typed_by else "")


@cache
def _formulas() -> Mapping[str, Mapping[str, Any]]:
    data: Mapping[str, Mapping[str, Any]] = json.loads(
        resources.files(__package__).joinpath("formulas.json").read_text("utf-8")
    )
    return data


def _formula(name: str) -> str:
    known = next((entry for entry in _formulas().values() if name in entry["functions"]), None)
    return f"## Formula\n\n$$\n{known['formula']}\n$$\n\n{known['where']}" if known else ""


def _clauses(name: str) -> Iterable[str]:
    """Yield the refusals in the order of the document's list, then what the call does."""
    found = of_subject().get(name, [])
    kinds: dict[str, Callable[[Evidence], bool]] = {
        "Status rules": lambda one: one.clause.status is not None,
        "What it does": lambda one: one.clause.status is None,
    }
    for title, belongs in kinds.items():
        rows = [
            (one.clause.id.partition("/")[2], (one.clause.status or one.clause.kind).removeprefix("CUDNN_STATUS_"), one.clause.text, one.state, _shown_by(one))
            for one in found
            if belongs(one)
        ]  # fmt: skip
        yield titled(title, ("clause", "kind", "sentence", "evidence", "case"), rows)


def _shown_by(one: Evidence) -> str:
    more = f" and {len(one.cases) - 1} more" if len(one.cases) > 1 else ""
    return f"`{one.cases[0]}`{more}" if one.cases else one.why


def _tolerance(name: str) -> str:
    head = ("sample", "output", "type", "arithmetic", "allowed error", "sharper rule")
    text = titled("Tolerance", head, list(tolerances(name)))
    note = (
        "The allowed error is the worst case over the largest result, in roundoffs of the arithmetic, for the sample of this name in"
        " `conformance/cases/every_operation.toml`. Where inputs are random, the sharper rule holds, too ([tolerance](../tolerance.md))."
    )
    return f"{text}\n\n{note}" if text else ""


def _support(name: str) -> str:
    """Return the support table of a convolution; its searches and its query of a workspace refer to it."""
    for computed in SUPPORT:
        asks = computed.replace("cudnn", "cudnn(Find|Get)") + "(Algorithm|AlgorithmEx|Algorithm_v7|WorkspaceSize)"
        if re.fullmatch(asks, name):
            return f"## Support\n\nThe table of [{computed}]({computed}.md) says which algorithms serve."
    rows = [
        (
            ", ".join(a.name.removeprefix("CUDNN_CONVOLUTION_") for a in row.algorithms),
            f"{row.spatial}-D",
            row.filter_format.name.removeprefix("CUDNN_TENSOR_"),
            row.x[0],
            row.y[0],
            ", ".join(c.name for c in row.configurations),
            "; ".join(text for text, _ in row.rules),
            row.clause.partition("/")[2],
        )
        for row in SUPPORT.get(name, ())
    ]
    return titled("Support", ("algorithms", "rank", "filter", "x", "y", "configurations", "also", "clause"), rows)


def _says(one: Erratum, name: str) -> bool:
    return any(re.search(rf"\b{name}\b", text) for text in (one.question, one.decision, one.evidence))


def _errata(name: str) -> str:
    rows = [(", ".join(one.ids), one.question, one.decision, one.evidence) for one in errata() if _says(one, name)]
    return titled("What was decided", ("id", "question", "decision", "evidence"), rows)


def _differences(name: str) -> str:
    rows = [
        (one.id, one.document, one.vendor, one.decision)
        for one in DIFFERENCES
        if one.function == name or any(clause.startswith(f"{name}/") for clause in one.clauses)
    ]
    return titled("Where NVIDIA's library differs", ("id", "document", "NVIDIA's library", "decision"), rows)


def _speed(name: str) -> str:
    source, solvers = solvers_of(name)
    rows = [(f"`{s}`", *((str(one[0]), f"{one[1]:.2f}") if one else ("", ""))) for s, one in solvers.items()]
    note = f"{source}. Times of the best baseline over ours: above 1 this library is faster." if source else ""
    note = note or "No benchmark of drawn layers has measured these solvers."
    return f"## Solvers and speed\n\n{note}\n\n{table(('solver', 'rows', 'geometric mean'), rows)}" if rows else ""


def _example(name: str) -> str:
    found, samples = example_of(name), samples_of(name)
    if found is None and samples:
        sample = next(iter(samples.values()))
        return f"## Example\n\nThis makes and judges a call:\n\n```sh\ndualdnn conformance --operation '{sample}'\n```"
    if found is None:
        return ""
    path, line, text = found
    kind = {"c": "c", "py": "python"}.get(path.rpartition(".")[2], "text")
    return f"## Example\n\nFrom `{path}`, line {line}:\n\n````{kind}\n{text}\n````"
