"""Find the cases that reach a source, by the kernels.json of a run of the suite by all solvers.

These cases launch the kernels that depend on the source. They are ordered so that a bug is likely noticed in little
time.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, cached_property
from itertools import pairwise, zip_longest
from pathlib import Path

from dualdnn.accelerated.runtime.sources import INCLUDE, KERNELS, declared_entry_points
from dualdnn.accelerated.solver import SOLVER_FAMILIES
from dualdnn.conformance.solvers import ALL, covering

from . import Bug

SHARED_BY_ALL = ("primitives", "runtime")  # folders whose Python all families plan with
BOUNDS = r"__launch_bounds__\((?:[^()]|\([^()]*\))*\)"
# This matches the beginning of a function.
FUNCTION = re.compile(rf"__(?:device|global)__ (?:[^;{{}}()=]|{BOUNDS})*?\b(?!__launch)(\w+)\(")


class Reach:
    """Find the cases of accelerated/ by source. Sources are named as in the project: accelerated/pooling/average.cu."""

    def __init__(self, kernels_file: Path) -> None:
        table = json.loads(kernels_file.read_text(encoding="utf-8"))
        self.launching: dict[str, list[str]] = table["kernels"]
        self.seconds: dict[str, float] = table["seconds"]

    @cached_property
    def sources(self) -> dict[str, set[Path]]:
        """Return kernel -> its source and the project headers that it includes."""
        declared = {name: path for path in KERNELS.rglob("*.cu") for name in declared_entry_points(path)}
        included = {name: closure(path) for name, path in declared.items()}
        names = {kernel: max(filter(kernel.startswith, declared), key=len, default="") for kernel in self.launching}
        # Other kernels have been removed since that run.
        return {kernel: included[name] for kernel, name in names.items() if name}

    def kernels(self, file: str) -> set[str]:
        """Return the kernels that depend on a source.

        These are the kernels compiled from a kernel source, or from the twin of a solver's module. Other Python files
        have the kernels of their folder, or all.
        """
        path = KERNELS / Path(file).relative_to("accelerated")
        twin = path.with_suffix(".cu")
        if path.suffix != ".py" or twin.is_file():
            wanted = twin if path.suffix == ".py" else path
            return {kernel for kernel, sources in self.sources.items() if wanted in sources}
        return self.neighbours(path.parent)

    def neighbours(self, folder: Path) -> set[str]:
        """Return the kernels of a folder; all kernels for a shared folder, or one without kernels."""
        inside = {kernel for kernel, sources in self.sources.items() if any(folder in s.parents for s in sources)}
        shared = folder == KERNELS or folder.name in SHARED_BY_ALL or not inside
        return set(self.sources) if shared else inside

    def cases(self, file: str) -> list[str]:
        """Return the cases that launch these kernels.

        For Python files they alternate with the family's cases, because a refusing solver launches nothing.
        """
        own = self.launched_by(self.kernels(file))
        family = KERNELS / Path(file).parts[1]
        others = self.launched_by(self.neighbours(family)) if file.endswith(".py") else []
        return list(dict.fromkeys(case for pair in zip_longest(own, others) for case in pair if case))

    def launched_by(self, wanted: set[str]) -> list[str]:
        """Return the cases that launch kernels: first a few that launch each, then the cheapest of each
        function of cases in rounds.
        """
        kernels = {kernel: self.launching[kernel] for kernel in wanted & self.launching.keys()}
        first = covering({"kernels": kernels, "seconds": self.seconds})
        left = self.in_rounds({case for cases in kernels.values() for case in cases})
        return list(dict.fromkeys([*sorted(first, key=lambda case: self.seconds[case]), *left]))

    def in_rounds(self, cases: set[str]) -> list[str]:
        """Return cases in rounds: each round has the cheapest remaining case of each function of cases."""
        functions: dict[str, list[str]] = {}
        for case in sorted(cases, key=lambda case: (self.seconds[case], case)):
            functions.setdefault(case.partition("[")[0], []).append(case)
        rounds = zip_longest(*functions.values())
        return [case for one in rounds for case in sorted(filter(None, one), key=lambda case: self.seconds[case])]

    def of_files(self, stems: tuple[str, ...]) -> list[str]:
        """Return the cases of these files that launch kernels, because the reference is compared with kernels."""
        every = self.seconds.keys() & {case for cases in self.launching.values() for case in cases}
        return self.in_rounds({case for case in every if case.partition("/")[0] in stems})

    def aimed(self, bug: Bug, most: int | None = None) -> Bug:
        """Return the bug with at most ``most`` cases and the solvers that reach it.

        Cases of kernels that call its function come first. A bug of the reference has the cases of its files.
        """
        if bug.layer == "reference":
            return replace(bug, ordered=tuple(self.of_files(bug.cases)[:most]))
        ordered = self.cases(bug.file)
        if not bug.file.endswith(".py"):
            source = KERNELS / Path(bug.file).relative_to("accelerated")
            text = source.read_text(encoding="utf-8")
            names = functions_with(text, text.find(bug.old) + len(bug.old) // 2)
            called = {kernel for kernel in self.kernels(bug.file) if self.calls(kernel, source, names)}
            ordered = list(dict.fromkeys([*self.launched_by(called), *ordered]))
        return replace(bug, ordered=tuple(ordered[:most]), solvers=self.solvers(bug.file))

    def calls(self, kernel: str, source: Path, names: set[str]) -> bool:
        """Return whether a kernel is one of these functions, or another of its sources mentions one."""
        return kernel.startswith(tuple(names)) or any(names & words(other) for other in self.sources[kernel] - {source})

    def solvers(self, file: str) -> str:
        """Return the solvers that must run to launch the kernels: the solvers of the file's module or of its
        twin, else all.
        """
        path = Path("dualdnn", file).with_suffix("")
        module = ".".join(path.parts)
        names = {s.name for served in SOLVER_FAMILIES.values() for s in served.solvers if type(s).__module__ == module}
        return ",".join(sorted(names)) or ALL


@cache
def words(source: Path) -> frozenset[str]:
    """Return the words of a source."""
    return frozenset(re.findall(r"\w+", source.read_text(encoding="utf-8")))


def functions_with(source: str, position: int) -> set[str]:
    """Return the function at a position of a source, and the functions of the source that call it."""
    begins = [*((match.start(), match[1]) for match in FUNCTION.finditer(source)), (len(source), "")]
    bodies = [(name, source[begin:end], begin <= position < end) for (begin, name), (end, _) in pairwise(begins)]
    found = {name for name, _, holds in bodies if holds}
    while more := {name for name, body, _ in bodies if found & set(re.findall(r"\w+", body))} - found:
        found |= more
    return found


def closure(source: Path) -> set[Path]:
    """Return a kernel source and the project headers that it includes."""
    found, left = {source}, [source]
    while left:
        path = left.pop()
        names = filter(None, INCLUDE.findall(path.read_text(encoding="utf-8")))
        headers = {(parent / name).resolve() for name in names for parent in (path.parent, KERNELS)}
        new = {header for header in headers - found if header.is_file()}
        found |= new
        left += new
    return found
