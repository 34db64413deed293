"""Test the layers: which package may import which, and that each has every family and operation.
tests/accelerated/test_families.py checks the folders of accelerated/."""

from __future__ import annotations

import ast
import collections
import itertools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from dualdnn.api.operations import FAMILIES

ROOT = Path(__file__).parent.parent
LAYERS = ("api", "reference", "accelerated", "conformance")
# Both backends import api. Only OPENERS import upwards, inside functions, to open backends or call the judge.
ALLOWED = {
    "api": {"api"},
    "reference": {"api", "reference"},
    "accelerated": {"api", "accelerated"},
    "conformance": {"api", "reference", "accelerated", "conformance"},
}
OPENERS = {"api/handle.py", "api/abi/pointers.py", "api/crosscheck.py", "api/cudnn/library.py"}

SEVERAL = re.compile(r"""^[A-Z_\d]+(?:, [A-Z_\d]+)+ = \(?\s*[-\d"'b]""", re.M)
SEVERAL_OF_C = re.compile(r"^(?:static |inline )*constexpr (?:\w+ )+\w+ = [^;{]*?,\s*\w+ = ", re.M)


def sources() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


IMPORT = re.compile(r"^[ \t]*((?:from|import)\b.*\bdualdnn\b(?:[^(\n]*\([^)]*\)|.*))", re.M)
RELATIVE = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.M)
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.M)
# the targets of an assignment to constants: names, or names in parentheses
NAMED = re.compile(r"^(?:([A-Za-z_][\w, ]*?)|\(([\w,\s]+)\)) *(?::[^=\n]*)?=(?!=)", re.M)


def imported(path: Path) -> set[str]:
    """Return the layers that a file imports by their full name."""
    found = set()
    statements = "\n".join(IMPORT.findall(path.read_text()))  # Parsing whole files takes a hundred times as long.
    for node in ast.parse(statements).body:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
        if names == ["dualdnn"]:
            names = [f"dualdnn.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("dualdnn.")}
    return found


def test_dependencies_point_one_way():
    for path in sources():
        name = str(path.relative_to(ROOT))
        extra = {"reference", "accelerated"} if name in OPENERS else set()
        assert imported(path) <= ALLOWED[name.split("/")[0]] | extra, name


def relative_imports(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (parts of a module's path, a name) for each name that a file imports from its own layer, also in functions."""
    package = path.relative_to(ROOT).parent.parts
    for dots, module, names in RELATIVE.findall(FOR_TYPES.sub("", path.read_text())):
        base = (*package[: len(package) + 1 - len(dots)], *filter(None, module.split(".")))
        for name in re.findall(r"\w+", re.sub(r"#.*|\bas \w+", "", names)):
            yield base, name


def test_no_modules_import_each_other_in_a_circle():
    """Each part of a circle can only be understood with the others. Imports inside functions count, too."""
    modules = {path.relative_to(ROOT).with_suffix("").parts for path in sources()}
    graph = collections.defaultdict(set)
    for path in sources():
        for base, name in relative_imports(path):
            graph[path.relative_to(ROOT).with_suffix("").parts] |= {(*base, name), base} & modules
    assert sum(map(len, graph.values())) > 2000
    TopologicalSorter(graph).prepare()  # It raises CycleError, which names the modules.


def test_no_folder_has_more_than_30_modules():
    count = collections.Counter(path.parent for path in [*sources(), *(ROOT / "tests").rglob("*.py")])
    assert not {str(folder.relative_to(ROOT)) for folder, modules in count.items() if modules > 30}


def test_only_the_device_layer_touches_pycuda():
    users = [path for path in sources() if "import pycuda" in path.read_text() or "from pycuda" in path.read_text()]
    assert {str(path.relative_to(ROOT)) for path in users} <= {"accelerated/runtime/contexts.py"}


def test_each_family_is_in_every_layer():
    for layer, family in itertools.product(("api/operations", "api/cudnn", "reference", "conformance/cases"), FAMILIES):
        found = [*(ROOT / layer).glob(f"{family}*.py"), *(ROOT / layer / family).glob("*.py")]
        assert sum(path.stat().st_size for path in found) > 300, f"{layer}/{family}.py has nothing but a docstring"
        assert (ROOT / "accelerated" / family / "plan.py").stat().st_size > 300, family


def test_every_operation_is_implemented_and_callable():
    from dualdnn import accelerated, reference
    from dualdnn.api.document import functions
    from dualdnn.api.operations import Operation
    from dualdnn.api.operations.records import RECORDS
    from dualdnn.conformance.calls.caller import function_of
    from dualdnn.conformance.calls.derived import arguments

    def of_the_project(kinds):  # Other tests declare operations, too.
        return {kind for kind in kinds if issubclass(kind, Operation) and kind.__module__.startswith("dualdnn.")}

    operations = of_the_project(RECORDS.values())
    assert of_the_project(reference.implemented()) == operations
    assert set(accelerated.implemented()) == operations
    for kind in operations:
        assert len(arguments(function_of(kind), kind)) == len(functions()[function_of(kind)].arguments)


def test_a_module_names_a_thing_once():
    """A second constant with the same name would silently replace the first."""
    for path in sources():
        text = path.read_text()
        named = re.findall(r"\w+", " ".join(itertools.chain(*NAMED.findall(text))))
        if len(set(named)) == len(named):
            continue  # Parsing all files takes two seconds.
        names = collections.Counter(
            name.id
            for statement in ast.parse(text).body
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            for name in ast.walk(target)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )
        assert not [name for name, count in names.items() if count > 1], path


def test_a_line_declares_one_constant():
    """Its comment then says the unit of this constant, or what it bounds."""
    for path in sources():
        assert not SEVERAL.search(path.read_text()), path
    for path in (ROOT / "accelerated").rglob("*.*"):
        assert path.suffix not in (".cu", ".cuh", ".h") or not SEVERAL_OF_C.search(path.read_text()), path


def test_a_difference_is_declared_once():
    from dualdnn.conformance.differences import DIFFERENCES, declare

    before = list(DIFFERENCES)
    with pytest.raises(ValueError, match=f"difference {before[0].id} is declared already"):
        declare([before[0]])
    assert before == DIFFERENCES


def test_differences_name_clauses_of_the_document():
    from dualdnn.conformance.differences import DIFFERENCES
    from dualdnn.conformance.report import load_clauses

    clauses = load_clauses()
    for entry in DIFFERENCES:
        assert set(entry.clauses) <= set(clauses), entry.id


def test_no_text_has_the_marks_of_a_merge():
    texts = [path for pattern in ("*.md", "*/*.md", "*/*.json", "Makefile", "*.toml") for path in ROOT.glob(pattern)]
    assert len(texts) > 10
    assert [
        path for path in texts if "\n<<<<<<< " in path.read_text("utf-8") or "\n>>>>>>> " in path.read_text("utf-8")
    ] == []
