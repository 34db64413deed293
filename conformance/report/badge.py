"""Draw badge.svg: the verdict of each subject in a small picture, for a project's front page."""

from html import escape

from .model import Report

HEIGHT = 20  # px
PADDING = 6  # px
GLYPH = 6.6  # approximate width of a character of 11 px
COLOURS = {"passed": "#2f7d52", "known": "#a87408", "failed": "#b3302a", "none": "#6b6459"}


def to_badge(report: Report) -> str:
    """Return the text of badge.svg: "passed of tested" clauses on one line per subject, coloured by the worst state."""
    lines = [_line(report, subject.name) for subject in report.subjects]
    left = max(_width(name) for name, _, _ in lines)
    right = max(_width(verdict) for _, verdict, _ in lines)
    rows = "".join(_row(index * (HEIGHT + 2), left, right, *line) for index, line in enumerate(lines))
    width, height = left + right, len(lines) * (HEIGHT + 2) - 2
    spoken = escape("; ".join(f"{name}: {verdict}" for name, verdict, _ in lines), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{spoken}">'
        f'<title>{spoken}</title><g font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{rows}</g></svg>\n'
    )


def _line(report: Report, subject: str) -> tuple[str, str, str]:
    totals = report.totals[subject]
    tested = totals["passed"] + totals["known"] + totals["failed"]
    state = next((state for state in ("failed", "known", "passed") if totals[state]), "none")
    return subject, f"{totals['passed']} of {tested} tested clauses passed" if tested else "nothing tested", state


def _row(y: int, left: int, right: int, name: str, verdict: str, state: str) -> str:
    def text(x: int, words: str) -> str:
        return f'<text x="{x + PADDING}" y="{y + 14}" fill="#fff">{escape(words)}</text>'

    return (
        f'<rect x="0" y="{y}" width="{left}" height="{HEIGHT}" fill="#3c4248"/>{text(0, name)}'
        f'<rect x="{left}" y="{y}" width="{right}" height="{HEIGHT}" fill="{COLOURS[state]}"/>{text(left, verdict)}'
    )


def _width(words: str) -> int:
    return round(len(words) * GLYPH) + 2 * PADDING
