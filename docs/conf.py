"""Builds the site: `make docs`. Guides are the Markdown files beside this one; pages of functions are made from the data of the code.

Sphinx builds pages that Python makes, and fails on a broken link. MyST reads the Markdown that GitHub shows. Furo needs no network.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from dualdnn.api import __version__
from dualdnn.api.document.errata import errata
from dualdnn.conformance.differences import DIFFERENCES
from dualdnn.conformance.pages.evidence import of_subject
from dualdnn.conformance.pages.functions import LIBRARIES, page, subjects, table, titled
from latex2mathml.converter import convert

project = "dualdnn"
release = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
html_theme = "furo"
html_title = f"dualdnn {release}"
html_copy_source = html_show_copyright = False
html_static_path = html_css_files = ["site.css"]
html_math_renderer = "mathml"  # browsers draw it themselves, without a script from elsewhere
exclude_patterns = ["_build"]
# Guides point at files of the repository that are not pages.
suppress_warnings = ["myst.xref_missing"]

HERE = Path(__file__).parent
MADE = HERE / "made"  # ignored by git
ORPHAN = "---\norphan: true\n---\n"  # the sidebar has libraries, whose pages have links to their functions
FEW_WORDS = 110  # characters of a sentence in an index


def sentence(name: str) -> str:
    """Return what a function or type is for: the first sentence of its clauses, cut."""
    found = of_subject().get(name)
    text = found[0].clause.text if found else ""
    return text if len(text) <= FEW_WORDS else text[:FEW_WORDS].rpartition(" ")[0] + " …"


def make_pages(_app: Any) -> None:
    """Write the pages that are made from data, an index for each library, and llms.txt."""
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir()
    libraries = defaultdict(list)
    for name, library in subjects().items():
        (MADE / f"{name}.md").write_text(ORPHAN + page(name), "utf-8")
        libraries[library].append(name)
    for library, names in libraries.items():
        rows = [(f"[{name}]({name}.md)", sentence(name)) for name in names]
        text = f"# {LIBRARIES[library]}\n\n{table(('name', 'what it is for'), rows)}\n"
        (MADE / f"{library}.md").write_text(text, "utf-8")
    (MADE / "decisions.md").write_text(decisions(), "utf-8")


def decisions() -> str:
    """Return the page of all errata and of what NVIDIA's library does otherwise."""
    sections = defaultdict(list)
    for one in errata():
        sections[one.section].append((", ".join(one.ids), one.question, one.decision, one.evidence))
    parts = ["# What was decided"]
    parts += [titled(name, ("id", "question", "decision", "evidence"), rows) for name, rows in sections.items()]
    differences = [(d.id, d.function, d.document, d.vendor, d.decision) for d in DIFFERENCES]
    parts.append(
        titled("Where NVIDIA's library differs", ("id", "call", "document", "its library", "decision"), differences)
    )
    return "\n\n".join(parts) + "\n"


def copy_texts(app: Any, error: Exception | None) -> None:
    """Put the Markdown of every page beside its HTML, and llms.txt, which lists them."""
    if error or app.builder.name != "html":
        return
    for path in (*HERE.glob("*.md"), *HERE.glob("*/*.md")):
        copy = Path(app.outdir) / path.relative_to(HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text("utf-8").removeprefix(ORPHAN), "utf-8")
    guides = [f"- [{path.stem}]({path.name})" for path in sorted(HERE.glob("*.md")) if path.stem != "index"]
    pages = [f"- [{name}](made/{name}.md): {sentence(name)}" for name in subjects()]
    head = [
        "# dualdnn",
        "",
        "> The executable edition of the cuDNN 8.0.3 API Reference: documented calls, two backends, and what proves each sentence.",
    ]
    text = "\n".join([*head, "", "## Guides", *guides, "", "## Functions and types", *pages])
    (Path(app.outdir) / "llms.txt").write_text(text + "\n", "utf-8")


def formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML."""
    writer.body.append(convert(node.astext(), display="block" if node.tagname == "math_block" else "inline"))
    raise SkipNode


def setup(app: Any) -> None:
    """Connect what makes pages and formulas to Sphinx."""
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("builder-inited", make_pages)
    app.connect("build-finished", copy_texts)
