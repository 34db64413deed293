"""Show a function or type, a clause, or a decision, by name: `dualdnn show`."""

from __future__ import annotations

import argparse
import difflib

from dualdnn.api.document.errata import errata

from ..differences import DIFFERENCES
from .evidence import Evidence, evidence
from .functions import page, subjects


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "name", nargs="+", help="a function or type (cudnnPoolingForward), a clause (cudnnPoolingForward/c02), an erratum (D241)"
    )  # fmt: skip


def run(chosen: argparse.Namespace) -> int:
    """Print the facts on each name. Raises ValueError for an unknown name."""
    print("\n\n".join(said(name) for name in chosen.name))
    return 0


def said(name: str) -> str:
    """Return the facts on a function, type, clause or erratum. Raises ValueError for an unknown name."""
    if name in subjects():
        return page(name).rstrip()
    if name in evidence():
        return _clause(evidence()[name])
    found = [
        f"{', '.join(one.ids)} ({one.section})\n  question: {one.question}\n  decision: {one.decision}\n  evidence: {one.evidence}"
        for one in errata()
        if name in one.ids
    ]
    found += [
        f"{one.id} ({one.function})\n  document: {one.document}\n  NVIDIA's library: {one.vendor}\n  decision: {one.decision}"
        for one in DIFFERENCES
        if one.id == name
    ]
    if not found:
        known = [*subjects(), *(i for one in errata() for i in one.ids), *(one.id for one in DIFFERENCES)]
        near = ", ".join(difflib.get_close_matches(name.partition("/")[0], known, 3, 0.5))
        raise ValueError(
            f"name {name!r} is not a function, type, clause or erratum" + (f"; near it: {near}" if near else "")
        )
    return "\n\n".join(found)


def _clause(one: Evidence) -> str:
    clause = one.clause
    kind = f"{clause.kind}, {clause.status}" if clause.status else clause.kind
    lines = [
        f"{clause.id} (section {clause.section}, {kind})",
        f"  {clause.text}",
        f"  {one.state}. {one.why}".rstrip(),
    ]
    return "\n".join(lines + [f'  dualdnn conformance -k "{case}"' for case in one.cases])
