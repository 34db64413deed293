"""Run ``dualdnn report`` and ``dualdnn diff``."""

from __future__ import annotations

import argparse
from pathlib import Path

from dualdnn.api.files import write

from . import Comparison, read_json, to_page, to_text, write_report


def add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="compliance.json or compliance.json.gz")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("conformance-report"), help="default: %(default)s"
    )


def run_report(chosen: argparse.Namespace) -> int:
    """Write the files of a report from its JSON."""
    print(f"report: {write_report(read_json(chosen.file), chosen.out)['report.html']}")
    return 0


def add_diff_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", type=Path, help="compliance.json or compliance.json.gz")
    parser.add_argument("new", type=Path, help="a later report, to compare with the first")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the changes as a page, too")


def run_diff(chosen: argparse.Namespace) -> int:
    """Print the changes; return 1 if something became worse."""
    comparison = Comparison(read_json(chosen.old), read_json(chosen.new))
    print(to_text(comparison))
    if chosen.out:
        write(chosen.out, to_page(comparison).encode())
        print(f"page: {chosen.out}")
    return 1 if comparison.regressions else 0
