"""Runs ``dualdnn port``: reads sources, gives the verdict of each call, and writes the ported sources on request."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import resources
from pathlib import Path

from dualdnn.api.files import check_writable, write

from .forms import LEVELS, table
from .included import Headers
from .python_clients import port_python
from .reached import port_c
from .report import totals, write_report
from .rewriting import defined_names
from .tree import HELPERS, Source, read, sources
from .verdicts import VERDICTS, PortedFile

ALL_PORTED = 0  # exit status
SOME_LEFT = 1  # exit status
FAILED = 2  # exit status
FILES_OF_ONE_PROCESS = 64  # files; so few are ported sooner than other processes start


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files, or folders with all sources in them"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--in-place", action="store_true", help="change the files themselves")
    where.add_argument("--out", type=Path, metavar="DIR", help="write the ported sources into DIR")
    where.add_argument("--check", action="store_true", help="say what would become of each call, without a diff")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="verdicts as data (.json), or as a page with the diff side by side (.html)",
    )
    parser.add_argument(
        "--miopen-level", choices=LEVELS, default=LEVELS[0], help="which calls MIOpen has (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per core)")


def run(chosen: argparse.Namespace) -> int:
    """Port; return 0 if all is ported, 1 if calls, names or numbers are left, 2 if a file could not be read or
    written."""
    if chosen.jobs < 0:
        raise ValueError(f"--jobs is {chosen.jobs}, a number of processes is at least 1 (0: one per core)")
    if chosen.report and chosen.report.suffix not in (".json", ".html"):
        raise ValueError(f"--report is {chosen.report}: its name must end in .json or .html")
    found = list(sources(chosen.paths))
    if not found:
        raise ValueError(f"{', '.join(map(str, chosen.paths))} has no source of C, C++, CUDA or Python")
    _check_out(chosen, found)
    files = list(_ported(found, chosen.miopen_level, chosen.jobs or os.cpu_count() or 1))
    outputs = _outputs(chosen, found, files)
    check_writable([*outputs, *([chosen.report] if chosen.report else [])])
    for target, content in outputs.items():
        write(target, content)
    if not (chosen.in_place or chosen.out or chosen.check):
        for file in files:
            sys.stdout.writelines(_diff(file))
    for file in files:
        for said in (*file.verdicts, *file.notes) if chosen.check else file.left:
            print(f"{file.path}:{said}", file=sys.stdout if chosen.check else sys.stderr)
        if file.error:
            print(f"{file.path}: not looked at: it {file.error}", file=sys.stderr)
    if chosen.report:
        write_report(chosen.report, files, chosen.miopen_level)
    counts = totals(files)
    notes = sum(note.is_open for file in files for note in file.notes)
    print(
        ", ".join(f"{counts[verdict]} calls {verdict}" for verdict in VERDICTS)
        + f", {notes} other places left in {len(files)} files",
        file=sys.stderr,
    )
    if any(file.error for file in files):
        return FAILED
    return SOME_LEFT if any(file.left for file in files) else ALL_PORTED


def _ported(found: Sequence[Source], level: str, jobs: int) -> Iterator[PortedFile]:
    """Port every file, in order. Two passes are needed, because a name that the tree defines itself is not
    cuDNN's."""
    paths = [source.path for source in found]
    headers = Headers(paths, level)
    pieces = max(1, len(paths) // (8 * jobs))
    if len(paths) <= FILES_OF_ONE_PROCESS or jobs == 1:
        own = frozenset().union(*map(_own_names, paths))
        yield from _shown(map(partial(port_file, level=level, own_names=own, headers=headers), paths), len(paths))
        return
    with ProcessPoolExecutor(jobs) as pool:
        own = frozenset().union(*pool.map(_own_names, paths, chunksize=pieces))
        each = partial(port_file, level=level, own_names=own, headers=headers)
        yield from _shown(pool.map(each, paths, chunksize=pieces), len(paths))


def _shown(files: Iterator[PortedFile], count: int) -> Iterator[PortedFile]:
    """Pass the files on, with a progress bar on a terminal."""
    width = 40
    for done, file in enumerate(files, 1):
        yield file
        if count > FILES_OF_ONE_PROCESS and sys.stderr.isatty():
            bar = "#" * (width * done // count)
            print(
                f"\r[{bar:{width}}] {done} of {count} files",
                end="\n" if done == count else "",
                file=sys.stderr,
                flush=True,
            )


def port_file(path: Path, level: str, own_names: frozenset[str], headers: Headers) -> PortedFile:
    """Port one file, or say why it was not looked at."""
    try:
        text = read(path)
    except (OSError, ValueError) as error:
        return PortedFile(
            str(path),
            b"",
            b"",
            error=str(error) if isinstance(error, ValueError) else f"could not be read: {error.strerror}",
        )
    if path.suffix == ".py":
        # Clients of dualdnn.api.miopen have the guide's calls.
        return port_python(str(path), text, table()) if b"cudnn" in text.lower() else PortedFile(str(path), text, text)
    try:
        return port_c(str(path), text, table(level), own_names, headers.of(path, text), headers)
    except RecursionError:
        return PortedFile(str(path), text, text, error="nests expressions too deeply")


def _own_names(path: Path) -> frozenset[str]:
    try:
        text = read(path)
    except (OSError, ValueError):
        return frozenset()
    if path.suffix == ".py" or (b"cudnn" not in text and b"CUDNN" not in text):
        return frozenset()
    return frozenset(name for name in defined_names(text) if not table().knows(name))


def _check_out(chosen: argparse.Namespace, found: Sequence[Source]) -> None:
    if chosen.out is None:
        return
    out = chosen.out.resolve()
    for source in found:
        if out == source.root.resolve() or out in source.path.resolve().parents:
            raise ValueError(f"--out is {chosen.out}, where {source.path} lies: give another folder, or --in-place")
    targets = [source.path.relative_to(source.root) for source in found]
    twice = (
        next((target for target in targets if targets.count(target) > 1), None)
        if len(set(targets)) < len(targets)
        else None
    )
    if twice is not None:
        raise ValueError(f"--out: several files would become {chosen.out / twice}; port their folders one by one")


def _outputs(chosen: argparse.Namespace, found: Sequence[Source], files: Sequence[PortedFile]) -> dict[Path, bytes]:
    """Return the files to write: with --out every source that was read, in place the changed ones; and their
    helpers."""
    outputs: dict[Path, bytes] = {}
    for source, file in zip(found, files, strict=True):
        if file.error:
            continue
        if chosen.out:
            outputs[chosen.out / source.path.relative_to(source.root)] = file.after
        elif chosen.in_place and file.changed:
            outputs[source.path] = file.after
        if file.changed and (chosen.out or chosen.in_place):
            helper = HELPERS[source.path.suffix == ".py"]
            outputs[(chosen.out or source.root) / helper] = _helpers(helper, chosen.miopen_level)
    return outputs


def _helpers(name: str, level: str) -> bytes:
    """Return the helpers that go with the output, for one level of MIOpen."""
    text = resources.files(__package__).joinpath(name).read_bytes()
    guard = b"#define DUALDNN_PORT_MIOPEN_H\n"
    return text.replace(guard, guard + b"#define DUALDNN_PORT_TODAY\n", 1) if level == "today" else text


def _diff(file: PortedFile) -> Iterator[str]:
    before, after = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (file.before, file.after))
    for line in difflib.unified_diff(before, after, file.path, file.path):
        yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
