"""Checks the families of accelerated/: imports between them, the .py of each .cu, headers and entry points."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
from functools import cache
from pathlib import Path

from dualdnn.accelerated.runtime.sources import declared_entry_points, entry_points
from dualdnn.api.operations import FAMILIES

ROOT = Path(__file__).parent.parent.parent
LAYER = ROOT / "accelerated"
MAX_FOLDERS = 18
MAX_FILES = 30
HEADER_LINES = 15  # lines of a comment at the beginning of a file

# Families may import these modules. Each of these may import only the named ones.
SHARED = {
    "runtime": set(),
    "scalars": set(),
    "reproducible": set(),
    "records": {"runtime", "scalars"},
    "plans": {"records", "reproducible", "runtime", "scalars"},
    "primitives": {"plans", "records", "runtime"},
    "substitutes": {"plans", "records", "runtime"},
    "solver": {"plans", "reproducible", "runtime", "substitutes"},
    "gemm": {"runtime", "plans", "primitives", "solver"},
    "backend": {"plans", "records", "reproducible", "runtime", "scalars", "solver"},
    "__init__": {"backend", "plans", "runtime", "solver", *FAMILIES},
}
# The first family of a pair may use the second, for the given reason.
BORROWED = {
    (
        "convolution",
        "transform",
    ): "operands in another layout than a solver reads are transposed first, by the walks of TransformTensor",
    ("convolution", "reduce_tensor"): "the gradient of a bias is a sum over images and positions",
}

SUFFIXES = (".py", ".cu", ".cuh", ".h")


def folders() -> list[str]:
    return sorted(path.name for path in LAYER.iterdir() if path.is_dir() and (path / "__init__.py").is_file())


def families() -> list[str]:
    return [folder for folder in folders() if folder not in SHARED]


def kernels() -> list[Path]:
    return sorted(LAYER.rglob("*.cu"))


def folder_of(path: Path) -> str:
    """Return the folder of a file, or the stem of a file that is in no folder."""
    first, *rest = path.relative_to(LAYER).parts
    return first if rest else Path(first).stem


def name_of(path: Path) -> str:
    """Return the path of a kernel file below accelerated/, as launches name it."""
    return str(path.relative_to(LAYER))


def imports(path: Path) -> set[str]:
    """Return the folders and modules of accelerated/ that a source imports or includes."""
    if path.suffix != ".py":
        return {name.split("/")[0] for name in re.findall(r'#include "(\w+/[\w/.]+)"', path.read_text())}
    package = path.relative_to(LAYER).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            parts = [*base, *(node.module or "").split(".")] if node.module else list(base)
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
    return found


@cache
def graph() -> dict[str, set[str]]:
    uses: dict[str, set[str]] = collections.defaultdict(set)
    for path in LAYER.rglob("*"):
        if path.suffix in SUFFIXES:
            uses[folder_of(path)] |= imports(path) - {folder_of(path)}
    return uses


def test_there_are_few_folders():
    assert len(folders()) <= MAX_FOLDERS, folders()


def test_no_folder_is_crowded():
    """A folder with more files must be divided into one subfolder per kind of solver, like convolution/."""
    count = collections.Counter(path.parent for path in LAYER.rglob("*") if path.suffix in SUFFIXES)
    assert not [str(folder.relative_to(ROOT)) for folder, files in count.items() if files > MAX_FILES]


def test_a_family_imports_what_stands_under_it():
    for folder, used in graph().items():
        below = set(SHARED) - {"backend", "__init__"} | {other for family, other in BORROWED if family == folder}
        assert used <= SHARED.get(folder, below), f"{folder} imports {sorted(used - SHARED.get(folder, below))}"


def test_no_import_runs_back():
    tuple(
        graphlib.TopologicalSorter(
            {folder: used for folder, used in graph().items() if folder != "__init__"}
        ).static_order()
    )


def test_a_list_of_exceptions_is_used():
    for family, other in BORROWED:
        assert other in graph()[family], f"{family} does not use {other}"


def test_a_kernel_is_launched_from_its_folder_by_its_twin():
    texts = {user: user.read_text() for user in LAYER.rglob("*.py")}
    for path in kernels():
        name = name_of(path)
        users = {user for user, text in texts.items() if f'"{name}"' in text}
        twin = path.with_suffix(".py")
        assert {user.parent for user in users} <= {path.parent}, f"{name} is launched by {users}"
        assert twin in users if twin.exists() else users == {path.with_name("plan.py")}, f"{name}: {users}"


def test_kernels_begin_by_waiting_for_earlier_ones():
    """A kernel that does not wait could read memory that an earlier one still writes
    (primitives/dependent_launch.cuh)."""
    for path in kernels():
        beginnings = set(re.findall(r"__global__[^{;]*\{[\s\\]*(\S+)", path.read_text()))
        assert beginnings and beginnings <= {"griddepcontrol_wait();", "griddepcontrol_wait_deferred();"}, name_of(path)


def test_a_kernel_file_opens_with_its_roofline_bound():
    for path in kernels():
        opening = path.read_text().split("#include")[0].strip().splitlines()
        assert len(opening) <= HEADER_LINES and all(line.startswith("//") for line in opening if line), name_of(path)
        text = " ".join(opening).lower()
        said = "roofline" in text and "byte" in text and re.search(r"\d+\.\d+", text)
        assert said, f"{name_of(path)}: section, roofline bound, bytes"


def test_entry_points_are_unique_and_name_their_folder():
    """A profiler shows only the name of a kernel, so the name must tell the folder."""
    found = collections.Counter()
    for path in kernels():
        names = set(declared_entry_points(path))
        assert names, path
        wrong = [name for name in names if not name.startswith(f"{folder_of(path)}_")]
        assert not wrong, f"{path.name}: {wrong}"
        found.update(names)
    assert not [name for name, count in found.items() if count > 1]


def test_names_that_macros_make_are_whole():
    """Kernels that no case launches are found by name, so a name made by a macro must be read whole."""
    names = entry_points()
    assert not [name for name in names if name.endswith("_")]
    assert {"convolution_implicit_gemm_tma_nchw_128x128", "softmax_register_resident_forward_rows_4"} <= names
