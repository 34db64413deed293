"""Reports the findings of a run of ``dualdnn port``, as JSON and as one page that needs nothing else."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from dualdnn.api.files import write

from .verdicts import LEFT, VERDICTS, PortedFile

SCHEMA = 1


def totals(files: Sequence[PortedFile]) -> dict[str, int]:
    """Return the number of calls of each verdict."""
    return {verdict: sum(file.count(verdict) for file in files) for verdict in VERDICTS}


def to_document(files: Sequence[PortedFile], level: str) -> dict[str, Any]:
    """Return the report as JSON values; files without a word of cuDNN are only counted."""
    return {
        "schema": SCHEMA,
        "miopen_level": level,
        "totals": totals(files),
        "files_read": len(files),
        "files": [
            {
                "path": file.path,
                "changed": file.changed,
                "error": file.error,
                "verdicts": [asdict(verdict) for verdict in file.verdicts],
                "notes": [asdict(note) for note in file.notes],
            }
            for file in files
            if file.changed or file.verdicts or file.notes or file.error
        ],
    }


def write_report(target: Path, files: Sequence[PortedFile], level: str) -> None:
    """Write the report in the form that the file's name asks for."""
    if target.suffix == ".json":
        content = json.dumps(to_document(files, level), indent=1) + "\n"
    else:
        content = to_html(files, level)
    write(target, content.encode("utf-8", "replace"))


def to_html(files: Sequence[PortedFile], level: str) -> str:
    """Return a page: the totals, every verdict and note with its line, and the changes side by side."""
    counts = totals(files)
    rows = "".join(f"<tr><td>{escape(verdict)}</td><td>{count}</td></tr>" for verdict, count in counts.items())
    sections = "".join(_section(file) for file in files if file.changed or file.verdicts or file.notes or file.error)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dualdnn port</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{_STYLE}</style></head><body><h1>From cuDNN to MIOpen</h1>"
        f"<p>MIOpen as of: {escape(level)}. {len(files)} files were read.</p><table>{rows}</table>{sections}</body></html>\n"
    )


def _section(file: PortedFile) -> str:
    said = [(v.line, v.column, v.verdict == LEFT, str(v)) for v in file.verdicts]
    said += [(n.line, n.column, False, str(n)) for n in file.notes]
    items = "".join(
        f'<li class="{"left" if left else "said"}">{escape(text)}</li>' for _, _, left, text in sorted(said)
    )
    error = f"<p class=left>Not looked at: it {escape(file.error)}.</p>" if file.error else ""
    changes = ""
    if file.changed:
        before, after = (text.decode("utf-8", "replace").splitlines() for text in (file.before, file.after))
        changes = difflib.HtmlDiff(tabsize=4, wrapcolumn=100).make_table(
            before, after, "cuDNN", "MIOpen", context=True, numlines=2
        )
    return f"<h2>{escape(file.path)}</h2>{error}<ul>{items}</ul>{changes}"


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 110em; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 0 .6em; vertical-align: top; }
table.diff { font: 12px/1.4 ui-monospace, monospace; width: 100%; border: 1px solid #999; }
.diff_header { color: #555; text-align: right; } .diff_next { display: none; }
.diff_add { background: #b9f0c0; } .diff_chg { background: #fff2a8; } .diff_sub { background: #ffc4c4; }
ul { font: 13px/1.5 ui-monospace, monospace; } .left { color: #a40000; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #ddd; } .left { color: #ff8a8a; }
  .diff_add, .diff_chg, .diff_sub { color: #111; }
}
"""
