"""Draw random bugs from the sources, as mutants (``python -m dualdnn.conformance.injected --mutants 100 --seed 3``).

An edit has a kind (a comparison, a dropped statement, a field for its neighbour), a place in a file, and new text.
Files are drawn by their number of lines, then a kind that the file has, then one of its edits. Edits that visibly
change no result are left out: messages, estimates, the preference among solvers, and code that only a GPU compiles.
Read the survivors before counting them, because some change no result either.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dualdnn.conformance.suite.files import case_files

from . import LAYERS, Bug, source_of

# The suite does not judge these: the devices, the judge itself (tests/), the C library (make abi-conformance), Python's
# own interfaces.
APART = (
    "api/abi/", "api/enumerations.py", "api/document/", "api/crosscheck.py", "api/operations/dlpack.py", "accelerated/runtime/",
    "reference/judge.py", "reference/spread.py", "reference/formulas", "reference/spots.py",
)  # fmt: skip
PLANNING = {"applies", "estimated_seconds", "__repr__", "__str__"}  # functions that only plan or describe
MESSAGES = {"expect": 3, "refuse": 1, "CudnnError": 2}  # function -> number of its first argument that people read
# These cases judge sources outside of all families.
SHARED = ("every_call", "every_operation", "library", "tensor_descriptors")
WORDS: dict[type[ast.AST], tuple[str, str]] = {  # operator -> its text, and the replacement
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}
STATUSES = {"BAD_PARAM", "NOT_SUPPORTED", "EXECUTION_FAILED", "INTERNAL_ERROR"}
CLAUSE = re.compile(r"(\w+/)?c(\d\d)")


class Edit(NamedTuple):
    """Hold new text between two positions of a source."""

    kind: str
    start: int
    end: int
    new: str


class PythonEdits(ast.NodeVisitor):
    """Collect the edits of a Python source."""

    def __init__(self, text: str) -> None:
        self.found: list[Edit] = []
        self.text, self.lines = text, text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.tree = ast.parse(text)
        self.visit(self.tree)

    @cached_property
    def fields(self) -> dict[str, set[str]]:
        """Return name -> attributes that the file reads from it."""
        found: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.setdefault(node.value.id, set()).add(node.attr)
        return found

    @cached_property
    def constants(self) -> set[str]:
        """Return the names in capitals that the file reads."""
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return {name for name in names if re.fullmatch(r"[A-Z][A-Z0-9_x]{2,}", name)}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the start and end of a node."""

        def place(line: int, column: int) -> int:  # The syntax tree counts columns in bytes.
            return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def source(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def add(self, kind: str, node: ast.AST, new: str) -> None:
        self.found.append(Edit(kind, *self.span(node), new))

    def operator(self, kind: str, left: ast.AST, operator: ast.AST, right: ast.AST) -> None:
        """Add an edit that replaces the operator between two operands."""
        old, new = WORDS[type(operator)]
        start, end = self.span(left)[1], self.span(right)[0]
        where = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![\w<>=*/])", self.text[start:end])
        if where:
            self.found.append(Edit(kind, start + where.start(), start + where.end(), new))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in PLANNING:
            for part in (*node.decorator_list, *node.body):
                self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip a text for people."""

    visit_Import = visit_ImportFrom = visit_Raise = visit_JoinedStr  # type: ignore[assignment]

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self.operator("comparison", left, operator, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self.operator("and, or", left, node.op, right)
        for value in node.values:
            self.add("dropped condition", value, str(isinstance(node.op, ast.And)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add("dropped not", node, self.source(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is bool:
            self.add("constant", node, str(not node.value))
        elif type(node.value) is int:
            self.add("constant", node, str(node.value + 1))
            self.add("constant", node, str(node.value - 1))
        elif type(node.value) is float:
            self.add("constant", node, repr(node.value * 1.125 or 0.125))
        elif isinstance(node.value, str) and (clause := CLAUSE.fullmatch(node.value)):
            self.add("clause", node, f'"{clause[1] or ""}c{int(clause[2]) + 1:02}"')

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in WORDS:
            self.operator("arithmetic", node.left, node.op, node.right)
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.BitOr, ast.BitAnd)):
            self.add("dropped term", node, self.source(node.left))
            self.add("dropped term", node, self.source(node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self.source(node.func).rpartition(".")[2]
        if name in FUNCTIONS:
            end = self.span(node.func)[1]
            self.found.append(Edit("minimum, maximum", end - len(name), end, FUNCTIONS[name]))
        read = node.args[: MESSAGES.get(name)]
        for left, right in pairwise(read):
            if isinstance(left, (ast.Name, ast.Attribute, ast.Subscript)) and type(left) is type(right):
                (start, first), (second, end) = self.span(left), self.span(right)
                new = self.source(right) + self.text[first:second] + self.source(left)
                self.found.append(Edit("exchanged arguments", start, end, new))
        for part in (node.func, *read, *node.keywords):
            self.visit(part)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add("dropped statement", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add("dropped statement", node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.add("dropped branch", node.test, "False")
        self.add("dropped branch", node.test, "True")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add("one branch", node, f"({self.source(node.body)})")
        self.add("one branch", node, f"({self.source(node.orelse)})")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            for other in alike(node.attr, self.fields[node.value.id]):
                self.add("wrong field", node, f"{node.value.id}.{other}")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.constants and isinstance(node.ctx, ast.Load):
            for other in alike(node.id, self.constants):
                self.add("wrong enumerator", node, other)


def alike(name: str, others: Iterable[str]) -> list[str]:
    """Return names that could be mistaken for this one: other statuses, and names that share a word with it."""
    if name in STATUSES:
        return sorted(STATUSES.intersection(others) - {name})
    words = set(name.lower().split("_"))
    return sorted(other for other in others if other != name and words.intersection(other.lower().split("_")))


HIDDEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|^[ \t]*#(?:[^\n\\]|\\.)*|\basm\b[^;]*;|\bstatic_assert\b[^;]*;|\b__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)|\btemplate <[^>]*>",
    re.MULTILINE | re.DOTALL,
)
TERM = r"(?:\w|\.|->|\[[^\[\]]*\]|\([^()]*\))+"
NUMBER = r"(?<=[ (\[{-])%s(?=[;,)\]}\s])"
# Each entry has a kind, a pattern, and replacements of its first group. Formatted sources have spaces around operators,
# but not around < of a template.
TOKENS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("comparison", r" (<) ", ("<=",)), ("comparison", r" (<=) ", ("<",)), ("comparison", r" (>) ", (">=",)),
    ("comparison", r" (>=) ", (">",)), ("comparison", r" (==) ", ("!=",)), ("comparison", r" (!=) ", ("==",)),
    ("and, or", r" (&&) ", ("||",)), ("and, or", r" (\|\|) ", ("&&",)), ("dropped not", r"[\s(](!)(?=[\w(])", ("",)),
    ("dropped condition", rf"({TERM}(?: [<>=!]=? {TERM})? && )", ("",)), ("dropped condition", rf"( && {TERM}(?: [<>=!]=? {TERM})?)(?=[;,)])", ("",)),
    ("arithmetic", r"[\w\])] (\+) (?=[\w(])", ("-",)), ("arithmetic", r"[\w\])] (-) (?=[\w(])", ("+",)),
    ("arithmetic", r"[\w\])] (\*) (?=[\w(])", ("+",)), ("arithmetic", r" (%) ", ("/",)), ("arithmetic", r" (/) ", ("*",)),
    ("arithmetic", r" (\+)= ", ("-", "")), ("arithmetic", r" (-)= ", ("+",)), ("arithmetic", r" (<<|>>|&|\|) ", ("+",)),
    ("dropped term", rf"[\w\])]( [+-] {TERM})(?=[;,)\]])", ("",)), ("dropped term", rf"[\w\])]( \* {TERM})(?=[;,)\]]| [+-])", ("",)),
    ("dropped term", rf"[\s(\[]({TERM} [+*] )(?=[\w(])", ("",)),
    ("constant", NUMBER % "(0)", ("1",)), ("constant", NUMBER % "(1)", ("0", "2")), ("constant", NUMBER % r"([2-9]|[1-9]\d+)", ("{0} + 1", "{0} - 1")),
    ("constant", NUMBER % r"(\d+\.\d+)f?", ("1.125 * {0}",)), ("constant", r"\b(true)\b", ("false",)), ("constant", r"\b(false)\b", ("true",)),
    ("index", r"\[(\w[\w.]*)\](?= [-+*/]?= |[;,)]| [-+*])", ("{0} + 1",)), ("index", r"(?:Idx|Dim)\.([xyz])\b", ("y", "x")),
    ("minimum, maximum", r"\b(f?min)f?\(", ("max",)), ("minimum, maximum", r"\b(f?max)f?\(", ("min",)),
    ("dropped statement", r"[;{}\n]\s*((?!return)[\w:.<>, ]+\([^;{}]*\);)", (";",)), ("dropped statement", r"[;{}\n]\s+([\w.\[\]>-]+ [-+|&*]?= [^;{}]+;)", (";",)),
    ("dropped statement", r"[)\s](return|break|continue);", ("",)),
)  # fmt: skip
FIELDS = re.compile(
    r"\n  (?:const )?(?:unsigned|(?:long )*int|COMPUTE|float|FastDivmod|const ELEMENT\*)\s+([\w\[\], ]+,[\w\[\], ]+);"
)


def cuda_edits(text: str, gpu: bool = False) -> list[Edit]:
    """Return the edits of a kernel source as compiled by the emulated device, or by a GPU."""
    hidden = [*not_compiled(text, gpu), *(match.span() for match in HIDDEN.finditer(text))]
    found = []
    for kind, pattern, replacements in TOKENS:
        for match in re.finditer(pattern, text):
            found += [Edit(kind, *match.span(1), new.format(match[1])) for new in replacements]
    for names in FIELDS.findall(text):  # Each field is replaced by the next one of the same type.
        fields = re.findall(r"(?:^|, *)(\w+)", names)
        for one, other in zip(fields, fields[1:] + fields[:1], strict=True):
            found += [
                Edit("wrong field", *match.span(1), other)
                for match in re.finditer(rf"\ba(?:rguments)?\.({one})\b", text)
            ]
    return [edit for edit in found if not any(edit.start < end and start < edit.end for start, end in hidden)]


def not_compiled(text: str, gpu: bool = False) -> Iterator[tuple[int, int]]:
    """Yield start and end of the lines that the compiler of the emulated device, or of a GPU, does not see."""
    seen: list[bool | None] = []  # truth of each enclosing condition; None if the definitions decide
    start = 0
    for line in text.splitlines(keepends=True):
        word, _, condition = (
            line.replace("#", " ", 1).strip().partition(" ") if line.lstrip().startswith("#") else ("",) * 3
        )
        if word in ("if", "ifdef", "ifndef"):
            seen.append(holds(word, condition, gpu))
        elif word in ("elif", "else"):
            before = seen.pop()
            seen.append(None if before is None else not before and (word == "else" or holds(word, condition, gpu)))
        elif word == "endif":
            seen.pop()
        elif False in seen:
            yield start, start + len(line)
        start += len(line)


def holds(word: str, condition: str, gpu: bool) -> bool | None:
    """Return the value of a preprocessor condition on the emulated device or a GPU; None if the definitions decide."""
    if "EMULATED_CUDA" in condition:
        return (word == "ifndef") == gpu
    return gpu if "__CUDA_ARCH__" in condition else None


def edits(file: str, gpu: bool = False) -> list[Edit]:
    """Return all edits of a file."""
    text = source_of(file).read_text(encoding="utf-8")
    found = PythonEdits(text).found if file.endswith(".py") else cuda_edits(text, gpu)
    return list(dict.fromkeys(edit for edit in found if text[edit.start : edit.end] != edit.new))


def files(layers: Sequence[str] = LAYERS[:3]) -> list[str]:
    """Return the files that mutants are drawn from."""
    found = []
    for layer in layers:
        top = source_of(f"{layer}/")
        sources = (path for path in top.rglob("*") if path.suffix in (".py", ".cu", ".cuh"))
        found += [f"{layer}/{path.relative_to(top).as_posix()}" for path in sources]
    return sorted(file for file in found if not file.startswith(APART))


def cases_of(file: str) -> tuple[str, ...]:
    """Return the files of cases for a source.

    Their names, or their folders' names, match parts of the source's path. Shared sources have the cases in SHARED.
    """
    parts = Path(file).with_suffix("").parts[1:]
    found = []
    for path in case_files():
        folder, stem = path.parent.name, path.stem
        if folder in parts or stem.startswith(parts) or any(part.startswith(f"{folder}_") for part in parts):
            found.append(stem)
    return tuple(sorted({*found})) or SHARED


def injected(file: str, edit: Edit) -> Bug:
    """Return the bug of an edit; its old text has enough lines to be unique."""
    text = source_of(file).read_text(encoding="utf-8")
    start, end = text.rfind("\n", 0, edit.start) + 1, text.index("\n", edit.end)
    while text.count(text[start:end]) > 1:
        start, end = text.rfind("\n", 0, max(start - 1, 0)) + 1, max(end, text.find("\n", end + 1))
    new = text[start : edit.start] + edit.new + text[edit.end : end]
    was, instead = (" ".join(part.split()) for part in (text[edit.start : edit.end], edit.new))
    line = text.count("\n", 0, edit.start) + 1
    return Bug(
        file,
        text[start:end],
        new,
        f"line {line}, {edit.kind}: {was or 'nothing'} became {instead or 'nothing'}",
        cases_of(file),
    )


def drawn(number: int, seed: int, layers: Sequence[str] = LAYERS[:3], gpu: bool = False) -> list[Bug]:
    """Return this many mutants of some layers.

    Kernel mutants are in code that the emulated device, or a GPU, compiles.
    """
    chance, found = random.Random(seed), dict[tuple[str, int], Bug]()
    names = files(layers)
    lines = [source_of(name).read_bytes().count(b"\n") for name in names]
    while len(found) < number:
        file = chance.choices(names, lines)[0]
        possible = edits(file, gpu)
        if possible:
            kind = chance.choice(sorted({edit.kind for edit in possible}))
            edit = chance.choice([edit for edit in possible if edit.kind == kind])
            found.setdefault((file, edit.start), injected(file, edit))
    return list(found.values())
