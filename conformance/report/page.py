"""Write report.html: the report as one self-contained page."""

import base64
import gzip
import hashlib
import json
from html import escape
from importlib.resources import files
from string import Template

from .compliance_json import to_document
from .model import SECOND_DOCUMENT, Report


def to_html(report: Report) -> str:
    """Return the text of report.html: style, script and data in one file, without network access."""
    style, script = source_of("page.css"), source_of("page.js")
    policy = policy_of(style, script)
    return Template(source_of("page.html")).substitute(
        title=escape(f"Compliance with {report.specification}"),
        specification=escape(documents(report)),
        policy=policy,
        style=style,
        faults=injected_faults(),
        data=packed(json.dumps(to_document(report), allow_nan=False, separators=(",", ":"))),
        script=script,
    )


def documents(report: Report) -> str:
    """Return the name of the report's document, with the second one if it has clauses of it."""
    both = any(clause.library == SECOND_DOCUMENT for clause in report.clauses.values())
    return f"{report.specification} and MIOpen porting guide" if both else report.specification


def injected_faults() -> str:
    """Return the tables of which rules see which injected faults, with the text before each, as HTML."""
    found: list[str] = []
    for block in source_of("faults.md").strip().split("\n\n")[1:]:
        if not block.startswith("|"):
            found.append(f"<p>{escape(block)}</p>")
            continue
        head, _, *rows = ([escape(cell.strip()) for cell in line.strip("|").split("|")] for line in block.splitlines())
        cells = ["".join(f"<th>{cell}</th>" for cell in head)]
        cells += [f'<th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) for row in rows]
        found.append("<table>" + "".join(f"<tr>{line}</tr>" for line in cells) + "</table>")
    return "\n".join(found)


def source_of(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def policy_of(style: str, script: str | None = None) -> str:
    """Return the page's security policy: only its own style and script may run, whatever the messages contain."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            *([f"script-src '{_digest(script)}'"] if script is not None else []),
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def packed(text: str) -> str:
    """Return text as the page stores it: gzip without a time, in base64, which cannot end the surrounding element."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
