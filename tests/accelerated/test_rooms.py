"""Checks the rooms of accelerated/: imports between them, twins, headers, entry points, and the words of CUDA."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
from functools import cache
from pathlib import Path

import pytest
from dualdnn.accelerated.runtime.sources import declared_entry_points, entry_points
from dualdnn.api.operations import FAMILIES

ROOT = Path(__file__).parent.parent.parent
FLOOR = ROOT / "accelerated"
MAX_ROOMS, MAX_FILES, HEADER_LINES = 18, 30, 15

# These rooms are still being rewritten: the checks of headers, entry points and words skip them.
UNFINISHED: set[str] = set()
# These stand under the families, and each may import the named others.
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
# A pair is a family and the other that it uses; the text says why.
BORROWED = {
    (
        "convolution",
        "transform",
    ): "operands in another layout than a solver reads are transposed first, by the walks of TransformTensor",
    ("convolution", "reduce_tensor"): "the gradient of a bias is a sum over images and positions",
    ("fused_ops", "convolution"): "the statistics of a convolution's result are added up where it is stored",
}

# Each home-made word has its replacement. A test names the first expression that matches a line.
WORDS = {
    r"copy engine": "TMA",
    r"(first|second) cache": "L1, L2",
    r"(?<!\bin )\bturn(s|ed|ing)?\b|\bTURNED\b|_turn(s|ed)?\b|\bturn(s|ed)?_": "transpose; an MN-major operand",
    r"blocks? that stays?|one block a multiprocessor": "a persistent kernel",
    r"\balternating\b": "ping-pong",
    r"explicit matrix": "im2col buffer",
    r"known window|\bknown_(window|maximum|forward)": "static window",
    r"\bwhole\b|\bWhole\b": "global; 16-byte-aligned; full; packs of 16 bytes: which",
    r"\bhalves\b|_halves\b|\bhalves_": "half; fp16x2",
    r"(?<!-)\bmarch(es|ing)?\b|\bstrips?\b(?!\()": "sliding-window loop; thread tile",
    r"\bgifts?\b": "incoming gradient",
    r"\b(tell|tells|told|telling|hear|hears|heard)\b": "publish, read, halo exchange",
    r"\bcarriers?\b|\blookers?\b": "producer, consumer warps",
    r"\bmeet\(\)|\bmeeting\b": "__syncthreads(), a barrier",
    r"on (its|their) way\b|\bunder way\b": "in flight",
    r"\b(bring|brings|bringing|brought)\b|fetch(es|ed)? ahead|\basked ahead\b": "asynchronous load; prefetch to L2",
    r"\bstatistic\b|\bStatistic\b": "online-softmax state",
    r"\bboards?\b|\bbundles?\b|(?<!\.)\bagree(s|d)?\b": "grid exchange buffer; column tile; grid all-reduce; mbarrier, proxy fence",
    r"(?<!garbage )\bcollectors?\b": "compute warps, reducer warps",
    r"\bPASSING\b|\bstaying\b": "L2 evict_first, evict_last",
    r"wait_for_earlier|let_next_kernel|\blet in\b": "programmatic dependent launch: griddepcontrol_wait, griddepcontrol_launch_dependents",
    r"\botherwise\b\s*[:=.(]": "fallback",
    r"\bways?\b\s*[:=.(]|\bWay\b": "solver; address",
    r"\bpace\b": "throughput",
    r"\bDivisor\b": "FastDivmod",
    r"^// Floor\b|\bthe floor of (a|the) kernel": "roofline bound",
    r"(?<!in )(?<!in-)(?<!last )\bplaces?\b": "index, offset, address: which",
}
SUFFIXES = (".py", ".cu", ".cuh", ".h")


def rooms() -> list[str]:
    return sorted(path.name for path in FLOOR.iterdir() if path.is_dir() and (path / "__init__.py").is_file())


def families() -> list[str]:
    return [room for room in rooms() if room not in SHARED]


def kernels(*, finished: bool = False) -> list[Path]:
    found = sorted(FLOOR.rglob("*.cu"))
    return [path for path in found if not (finished and room_of(path) in UNFINISHED)]


def room_of(path: Path) -> str:
    """Return the room of a file, or its own stem where it lies beside the rooms."""
    first, *rest = path.relative_to(FLOOR).parts
    return first if rest else Path(first).stem


def name_of(path: Path) -> str:
    """Return the name of a kernel file in launches: its room, a part of the room if there is one, the file."""
    return str(path.relative_to(FLOOR))


def imports(path: Path) -> set[str]:
    """Return the rooms and modules of the floor that a source imports, by Python or by #include."""
    if path.suffix != ".py":
        return {name.split("/")[0] for name in re.findall(r'#include "(\w+/[\w/.]+)"', path.read_text())}
    package = path.relative_to(FLOOR).parts[:-1]
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
    for path in FLOOR.rglob("*"):
        if path.suffix in SUFFIXES:
            uses[room_of(path)] |= imports(path) - {room_of(path)}
    return uses


def test_there_are_few_rooms():
    assert len(rooms()) <= MAX_ROOMS, rooms()


def test_no_folder_is_crowded():
    """A room of more files has a folder for each kind of solver, as convolution/ has."""
    count = collections.Counter(path.parent for path in FLOOR.rglob("*") if path.suffix in SUFFIXES)
    assert not [str(folder.relative_to(ROOT)) for folder, files in count.items() if files > MAX_FILES]


def test_a_family_imports_what_stands_under_it():
    for room, used in graph().items():
        below = set(SHARED) - {"backend", "__init__"} | {other for family, other in BORROWED if family == room}
        assert used <= SHARED.get(room, below), f"{room} imports {sorted(used - SHARED.get(room, below))}"


def test_no_import_runs_back():
    tuple(
        graphlib.TopologicalSorter({room: used for room, used in graph().items() if room != "__init__"}).static_order()
    )


def test_a_list_of_exceptions_is_used():
    assert set(rooms()) >= UNFINISHED
    for family, other in BORROWED:
        assert other in graph()[family], f"{family} does not use {other}"


@pytest.mark.parametrize("path", kernels(), ids=name_of)
def test_a_kernel_is_launched_from_its_room_by_its_twin(path):
    name = name_of(path)
    users = {user for user in FLOOR.rglob("*.py") if f'"{name}"' in user.read_text()}
    twin = path.with_suffix(".py")
    assert {user.parent for user in users} <= {path.parent}, f"{name} is launched by {users}"
    if room_of(path) not in UNFINISHED:
        assert twin in users if twin.exists() else users == {path.with_name("plan.py")}, f"{name}: {users}"


@pytest.mark.parametrize("path", kernels(), ids=name_of)
def test_kernels_begin_by_waiting_for_earlier_ones(path):
    """A kernel that does not wait could start on memory that another one still writes
    (primitives/dependent_launch.cuh)."""
    beginnings = re.findall(r"__global__[^{;]*\{[\s\\]*(\S+)", path.read_text())
    assert beginnings and set(beginnings) <= {"griddepcontrol_wait();", "griddepcontrol_wait_deferred();"}


@pytest.mark.parametrize("path", kernels(finished=True), ids=name_of)
def test_a_kernel_file_opens_with_its_roofline_bound(path):
    opening = path.read_text().split("#include")[0].strip().splitlines()
    assert len(opening) <= HEADER_LINES and all(line.startswith("//") for line in opening if line)
    text = " ".join(opening).lower()
    assert "roofline" in text and "byte" in text and re.search(r"\d+\.\d+", text), "section, roofline bound, bytes"


def test_entry_points_are_unique_and_name_their_room():
    """A profiler shows only the name."""
    found = collections.Counter()
    for path in kernels():
        names = set(declared_entry_points(path))
        if room_of(path) not in UNFINISHED:
            assert names, path
            wrong = [name for name in names if not name.startswith(f"{room_of(path)}_")]
            assert not wrong, f"{path.name}: {wrong}"
            found.update(names)
    assert not [name for name, count in found.items() if count > 1]


def test_names_that_macros_make_are_whole():
    """The names of kernels show which of them no case launches, so each variant of a source must have them whole."""
    names = entry_points()
    assert not [name for name in names if name.endswith("_")]
    assert {"convolution_implicit_gemm_tma_factors_128x64", "softmax_register_resident_forward_rows_4"} <= names


def spoken() -> list[Path]:
    """Return the files that must use the words of CUDA: the floor's finished rooms and their tests."""
    floor = [path for path in FLOOR.rglob("*") if room_of(path) not in UNFINISHED]
    tests = [path for path in Path(__file__).parent.rglob("*") if path.parent.name not in UNFINISHED]
    return sorted(path for path in floor + tests if path.suffix in SUFFIXES and path.name != Path(__file__).name)


@pytest.mark.parametrize("path", spoken(), ids=lambda path: str(path.relative_to(ROOT)))
def test_home_made_words_are_gone(path):
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} -> {instead}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for expression, instead in WORDS.items()
        if (match := re.search(expression, line))
    ]
    assert not wrong, "\n" + "\n".join(wrong)
