"""Rewrites C, C++ and CUDA: finds the names and calls of one file by tree-sitter, and applies the table of forms."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Any

from . import arguments, integers, uses
from .declared import Declared
from .edits import Edits
from .expressions import KIND_OF_NAME, STATUS
from .forms import Table
from .verdicts import HELPED, LEFT, REWRITTEN, Note, PortedFile, Verdict
from .zeros import Zeros

NAME = re.compile(rb"\b(?:cudnn[A-Z]\w*|CUDNN_[A-Z0-9]\w*)")
HEADER = re.compile(
    rb"[<\"](?:[\w./-]*/)?cudnn(?:_v\d+|_ops_infer|_ops_train|_cnn_infer|_cnn_train|_adv_infer|_adv_train|_version|_backend)?(?:_v\d+)?\.h[>\"]"
)
DIRECTIVE_IN_DISGUISE = re.compile(
    rb"^[ \t]*(?:%:|\?\?=)[ \t]*(?:include|define)\b[^\n]*", re.M
)  # a digraph, a trigraph
_COMMENTED = re.compile(rb"^[ \t]*#[ \t]*define\b(?:/\*(?s:.)*?\*/|\"(?:\\.|[^\"\\\n])*\"|\\\r?\n|[^\n])*", re.M)
_COMMENT = re.compile(rb'"(?:\\.|[^"\\\n])*"|/\*(?s:.)*?\*/')
PASTING = re.compile(rb"\b(?:cudnn|CUDNN)\w*\s*##\s*\w*|\w*\s*##\s*(?:cudnn|CUDNN)\w*")
NAMES = frozenset({"identifier", "type_identifier", "field_identifier", "namespace_identifier", "statement_identifier"})
TEXTS = frozenset({"string_literal", "raw_string_literal", "char_literal", "concatenated_string", "system_lib_string"})
ABSENT_FIELDS = {b"determinism", b"mathType"}  # Performance structures of MIOpen lack these fields.

_DIRECTIVE = "there is a preprocessor directive inside its arguments: take the call apart, then port again"


@cache
def parser(language: str) -> Any:
    """Return the parser of "c", "cuda" (a superset of C++) or "python"."""
    import importlib

    try:
        from tree_sitter import Language, Parser

        grammar = importlib.import_module(f"tree_sitter_{language}")
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed: pip install 'dualdnn[port]'") from None
    return Parser(Language(grammar.language()))


class CFile:
    """Finds the names, calls and numbers of one file; ``own_names`` are functions and macros that the tree defines itself."""

    def __init__(self, path: str, text: bytes, table: Table, own_names: frozenset[str]) -> None:
        self.table, self.own_names = table, own_names
        self.edits = Edits(text)
        self.ported = PortedFile(path, text, text)
        self.text = text
        self.lines = [0, *(found.end() for found in re.finditer(rb"\n", text))]  # where each line begins
        self.newline = b"\r\n" if b"\r\n" in text else b"\n"
        self.frozen_until = 0  # The call that ends here stays as it was.
        self.frozen: list[tuple[int, int]] = []  # the calls that stay as they were
        self.noted: set[int] = set()  # places with an open note

    def port(self, outer: Declared | None) -> None:
        """Make the edits and notes of the text as it is written; ``outer`` is what the headers declare."""
        self.constants = arguments.constants(self.text)
        self.declared, found = self.declare(self.text, outer)
        self.changed = frozenset(self.table.changed_zeros)
        self.zeros = Zeros(self.declared, self.changed)
        for node in found:
            self.visit(node)
        if self.ported.verdicts or self.edits.edits:
            for match in PASTING.finditer(self.text):
                self.note_at(
                    match.start(), "pasting", f"{match.group().decode()} makes a name that is not seen: port it by hand"
                )
            for match in DIRECTIVE_IN_DISGUISE.finditer(self.text):
                self.note_at(
                    match.start(), "unknown", "this directive is not read: write # at its beginning, and port again"
                )

    def finished(self) -> PortedFile:
        """Return the file with its edits made, and what was said about it in order."""
        self.ported.after = self.edits.apply()
        self.ported.verdicts.sort(key=lambda v: (v.line, v.column))
        self.ported.notes.sort(key=lambda n: (n.line, n.column))
        return self.ported

    def declare(self, text: bytes, outer: Declared | None) -> tuple[Declared, list[Any]]:
        """Return what this file declares, read from its text or from its expanded text, and the nodes of that text."""
        read = text.replace(b"_Thread_local", b"thread_local ")  # The grammars know the newer word alone.
        read = _COMMENTED.sub(_blanked, read)  # To the grammars, a comment ends the body of a macro.
        root = parser("c" if self.ported.path.endswith(".c") else "cuda").parse(read).root_node
        found = list(nodes(root))
        return Declared(root, self.text, found, self.table.types, called, outer), found

    def visit(self, node: Any) -> None:
        kind = node.type
        if kind == "call_expression":
            name = called(node)
            if name is not None:
                self.call(node, name)
        elif kind == "preproc_include":
            self.include(node)
        elif kind == "preproc_arg":
            self.macro_body(node)
        elif (kind in TEXTS and not node.children) or kind in ("string_content", "raw_string_content"):
            self.string(node)
        elif kind in NAMES and node.start_byte >= self.frozen_until:
            self.name(node)
        for typed in uses.typed(self.declared, node):
            self.typed(typed)
        for place, of in self.zeros(node):
            self.zero(place, of)
        if kind in ("preproc_if", "preproc_elif"):
            self.condition(node.child_by_field_name("condition"))

    # --- integers ---

    def typed(self, typed: uses.Typed, shift: int = 0, declared: Declared | None = None) -> None:
        """Translate the numbers among the values of an expression of an enumeration type, and note the unknown ones."""
        declared = declared or self.declared
        if typed.kind in self.table.changed_zeros and not list(declared.values(typed.expression)):
            return self.empty(typed.expression, typed.kind)
        for leaf in declared.values(typed.expression):
            at, value = leaf.start_byte + shift, integers.number(leaf)
            if at < self.frozen_until:
                continue
            if leaf.type == "identifier" and leaf.text in declared.places:
                declared.macro_arguments.setdefault(declared.macro, {}).setdefault(
                    declared.places[leaf.text], typed.kind
                )
            text, (kind, is_number) = leaf.text.decode("utf-8", "replace"), declared.kind_of(leaf)
            if typed.is_opaque:
                self.note_at(at, "integer", f"{text} may hold a number here: MIOpen numbers its enumerators otherwise")
            elif typed.kind not in declared.kinds:
                self.as_number(at, text, kind if not is_number else "", typed)
            elif value is not None:
                self.integer(at, text, typed.kind, value)
            elif kind != typed.kind and (typed.is_cast or declared.is_number(leaf)):
                self.note_at(
                    at, "integer", f"{text} is a number of {typed.kind}: MIOpen numbers its enumerators otherwise"
                )

    def empty(self, expression: Any, kind: str) -> None:
        """Note empty braces or parentheses in place of a value; ``zeros`` sees those of declarations."""
        around = expression.parent
        if around is None or around.type not in ("init_declarator", "field_declaration"):
            self.zero(around if around is not None and around.type != "argument_list" else expression, kind)

    def zero(self, place: Any, kind: str, shift: int = 0) -> None:
        text, name = place.text.decode("utf-8", "replace"), self.table.changed_zeros[kind]
        self.note_at(
            place.start_byte + shift,
            "zero",
            f"{text} is {name} where it begins as 0: MIOpen numbers its enumerators otherwise, give it a value",
        )

    def condition(self, node: Any) -> None:
        """Note enumerators in a condition of the preprocessor, which takes every name that is not a macro as 0."""
        for match in NAME.finditer(node.text if node is not None else b""):
            text = match.group().decode()
            if text in KIND_OF_NAME and text not in self.own_names:
                self.note_at(
                    node.start_byte + match.start(), "integer", f"{text} is 0 in a condition of the preprocessor"
                )

    def as_number(self, at: int, text: str, kind: str, typed: uses.Typed) -> None:
        """Note an enumerator that is used as a number.

        Success is 0 in both libraries. Other numbers of a status go to logs and exit statuses.
        """
        if kind and not (kind == STATUS and typed.kind == "bool"):
            seen = "check" if typed.is_text or (kind == STATUS and typed.kind) else "integer"
            self.note_at(at, seen, f"{text} stands for its number here: MIOpen numbers its enumerators otherwise")

    def integer(self, at: int, text: str, kind: str, value: int) -> None:
        name = integers.enumerator_of(kind, value)
        target = self.table.enumerators.get(name or "")
        if kind == STATUS and value == 0:
            return  # Success is 0 in both libraries.
        if target is None:
            known = f"{name}, which has no counterpart in MIOpen" if name else f"not a {kind}"
            return self.note_at(at, "integer", f"the number {text} is {known}")
        self.edits.replace(at, at + len(text.encode()), target.encode())
        self.note_at(at, "check", f"the number {text} is {name}, here {target}")

    # --- calls ---

    def call(self, node: Any, name: Any) -> None:
        function = name.text.decode("utf-8", "replace")
        if node.start_byte < self.frozen_until:
            if self.table.knows(function):
                self.verdict(name, LEFT, function, None, "context", "it stands inside a call that is left as it was")
            return
        if function in self.declared.kinds:
            return  # This is a cast.
        if function not in self.table.forms:
            if NAME.fullmatch(name.text):
                self.outside(node, name, function)
            return
        given = list(arguments.of_call(node))
        problem = self.not_read(node)
        form = next((f for f in self.table.forms[function] if len(f.parameters) == len(given)), None)
        if problem is None and form is None:
            counts = " or ".join(str(len(f.parameters)) for f in self.table.forms[function])
            problem = f"it has {len(given)} arguments, the document has {counts}: port it by hand"
        if problem is not None:
            return self.leave(node, name, function, self.table.forms[function][0].rule, problem)
        assert form is not None
        decision = arguments.decide(form, given, self.constants)
        if decision.refused:
            return self.leave(node, name, function, form.rule, decision.refused)
        if form.helper and form.arguments != form.parameters and self.has_comments(node):
            decision.direct = False  # The comments name arguments, which stay where they are.
        for argument, message in decision.notes:
            self.note(argument, "check", f"{function}: {message}")
        for argument, kind in zip(given, integers.parameter_kinds(function, form.parameters), strict=True):
            if kind in self.declared.kinds:
                self.typed(uses.Typed(argument, kind))
        if decision.direct:
            assert form.miopen is not None
            self.rearrange(node, given, form)
            self.verdict(name, REWRITTEN, function, form.miopen, form.rule, "")
            self.edits.replace(name.start_byte, name.end_byte, form.miopen.encode())
        else:
            assert form.helper is not None
            self.verdict(name, HELPED, function, form.helper, form.rule, form.why)
            self.edits.replace(name.start_byte, name.end_byte, form.helper.encode())

    def not_read(self, node: Any) -> str | None:
        """Return why the argument list cannot be trusted."""
        listed = node.child_by_field_name("arguments")
        if any(child.type.startswith("preproc") for child in nodes(listed)) or b"\n#" in listed.text.replace(
            b" ", b""
        ).replace(b"\t", b""):
            return _DIRECTIVE
        if node.has_error:
            return "its arguments could not be read: the code is incomplete or no C++ before the preprocessor ran"
        return None

    def has_comments(self, node: Any) -> bool:
        return any(child.type == "comment" for child in node.child_by_field_name("arguments").children)

    def rearrange(self, node: Any, given: list[Any], form: Any) -> None:
        """Put the arguments into MIOpen's order, and keep the separators of the source in their places."""
        if form.arguments == form.parameters:
            return
        listed = node.child_by_field_name("arguments")
        if self.has_comments(node):
            self.note(node, "comment", f"{form.cudnn}: its arguments were rearranged, look at the comments among them")
        place = dict(zip(form.parameters, given, strict=True))
        ends = [listed.start_byte + 1, *(argument.end_byte for argument in given)]
        gaps = [(end, argument.start_byte) for end, argument in zip(ends[:-1], given, strict=True)]
        parts: list[Any] = [b"("]
        for index, argument in enumerate(form.arguments):
            parts.append(gaps[index] if index < len(gaps) else b", " if index else b"")
            constant = argument.startswith("=")
            parts.append(argument[1:].encode() if constant else (place[argument].start_byte, place[argument].end_byte))
        parts.append((given[-1].end_byte, listed.end_byte))
        self.edits.replace(listed.start_byte, listed.end_byte, *parts)

    def outside(self, node: Any, name: Any, function: str) -> None:
        """Note a call that no form covers."""
        if function in self.own_names:
            return
        if not self.table.knows(function):
            message = "it is not in cuDNN 8.0.3: a later version's function, or one of this program defined elsewhere"
            return self.leave(node, name, function, "unknown", message)
        today = self.table.today.get(function)
        hint = f"; {today}" if today else ""
        self.leave(node, name, function, "outside", f"the guide has no counterpart{hint}: port it by hand")

    def leave(self, node: Any, name: Any, function: str, rule: str, message: str) -> None:
        self.verdict(name, LEFT, function, None, rule, message)
        self.frozen_until = max(self.frozen_until, node.end_byte)
        self.frozen.append((node.start_byte, node.end_byte))

    # --- names ---

    def name(self, node: Any) -> None:
        text = node.text.decode("utf-8", "replace")
        parent = node.parent
        if node.type == "field_identifier" and node.text in ABSENT_FIELDS and b"AlgoPerf_t" in self.text:
            self.note(node, "no counterpart", f"MIOpen's results of Find have no field {text}")
        if not NAME.fullmatch(node.text) or text in self.own_names:
            return
        if text in self.table.forms:
            self.function_name(node, text)
        elif text in self.table.types:
            self.rename(node, self.table.types[text])
        elif text in self.table.enumerators:
            self.enumerator(node, text, parent)
        elif text in self.table.kept:
            pass
        elif self.table.knows(text):
            if text not in self.called_outside(node):
                self.note(node, "no counterpart", f"{text} has no counterpart in the guide")
        else:
            self.note(node, "unknown", f"{text} is not in cuDNN 8.0.3: a later version's name, or one of this program")

    def called_outside(self, node: Any) -> frozenset[str]:
        """Return a set with the name if a call names it, which gets a verdict of its own; else an empty set."""
        call = node.parent
        while call is not None and call.type in ("qualified_identifier", "template_function"):
            call = call.parent
        return (
            frozenset({node.text.decode("utf-8", "replace")})
            if call is not None and call.type == "call_expression" and called(call) == node
            else frozenset()
        )

    def function_name(self, node: Any, text: str) -> None:
        """Port a function that is not called here: a pointer to it, or text that was not read as a call."""
        if self.called_outside(node):
            return
        follows = self.text[node.end_byte : node.end_byte + 64].lstrip()
        rule = self.table.forms[text][0].rule
        if node.parent.type == "function_declarator":
            self.verdict(
                node, LEFT, text, None, rule, "it is declared or defined here: this program's own copy of cuDNN"
            )
        elif follows.startswith(b"("):
            has_directive = re.search(rb"\n[ \t]*#", self.text[node.end_byte :].partition(b";")[0])
            unread = _DIRECTIVE if has_directive else "the code around it could not be read: port it by hand"
            self.verdict(node, LEFT, text, None, rule, unread)
        else:
            target = self.table.target_of_name(text)
            if target is None:
                self.verdict(node, LEFT, text, None, rule, "it is named without its arguments, and MIOpen takes others")
            else:
                self.rename(node, target)
                self.verdict(
                    node,
                    REWRITTEN if not target.startswith("dualdnnPort") else HELPED,
                    text,
                    target,
                    rule,
                    "named without arguments",
                )

    def enumerator(self, node: Any, text: str, parent: Any) -> None:
        target = self.table.enumerators[text]
        if target is None:
            self.note(node, "no counterpart", f"{text} has no counterpart in MIOpen")
        elif (
            parent is not None
            and parent.type == "case_statement"
            and parent.child_by_field_name("value") == node
            and self.is_taken(parent, target)
        ):
            self.note(
                node, "no counterpart", f"{text} becomes {target} as another enumerator does: a case label cannot"
            )
        else:
            self.rename(node, target)

    def is_taken(self, label: Any, target: str) -> bool:
        """Return whether a label before this one, in the same switch, becomes the same enumerator."""
        for other in label.parent.named_children:
            if other.start_byte >= label.start_byte:
                return False
            value = other.child_by_field_name("value") if other.type == "case_statement" else None
            if value is not None and self.table.enumerators.get(value.text.decode("utf-8", "replace")) == target:
                return True
        return False

    # --- preprocessor, strings ---

    def include(self, node: Any) -> None:
        path = node.child_by_field_name("path")
        if path is not None and HEADER.fullmatch(path.text):
            lines = b"<miopen/miopen.h>" + self.newline + b'#include "dualdnn_port_miopen.h"'
            self.edits.replace(path.start_byte, path.end_byte, lines)

    def macro_body(self, node: Any) -> None:
        """Port names in the body of a macro: functions become the helper that takes the same arguments."""
        if node.parent.type in ("preproc_if", "preproc_elif", "preproc_call"):
            return
        code = re.sub(rb'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', lambda m: b" " * len(m.group()), node.text, flags=re.S)
        for match in NAME.finditer(code):
            start, text = node.start_byte + match.start(), match.group().decode()
            if text in self.table.kept or text in self.own_names or PASTING.match(code, match.start()):
                continue
            target = self.in_macro(start, text)
            if target is not None:
                self.edits.replace(start, start + len(text), target.encode())
        self.macro_numbers(node)

    def macro_numbers(self, node: Any) -> None:
        """Translate numbers in casts and calls of the body, which is read as a statement."""
        before = b"void f() { "
        root = parser("cuda").parse(before + node.text + b"; }").root_node
        shift = node.start_byte - len(before)
        listed = list(nodes(root))
        declared = Declared(root, b"", listed, self.declared.kinds, called, self.declared)
        zeros = Zeros(declared, self.changed, is_macro=True)
        names = node.parent.child_by_field_name("parameters")
        if names is not None:
            declared.macro = node.parent.child_by_field_name("name").text
            declared.places = {name.text: place for place, name in enumerate(integers.code(names))}
        for found in listed:
            for typed in uses.typed(declared, found):
                self.typed(typed, shift, declared)
            for place, of in zeros(found):
                self.zero(place, of, shift)
            name = called(found) if found.type == "call_expression" else None
            forms = self.table.forms.get(name.text.decode("utf-8", "replace"), ()) if name is not None else ()
            given = list(arguments.of_call(found)) if forms else []
            form = next((f for f in forms if len(f.parameters) == len(given)), None)
            if form is None or self.table.target_of_name(form.cudnn) is None:
                continue
            for argument, kind in zip(given, integers.parameter_kinds(form.cudnn, form.parameters), strict=True):
                if kind in self.declared.kinds:
                    self.typed(uses.Typed(argument, kind), shift, declared)

    def in_macro(self, start: int, text: str) -> str | None:
        if text in self.table.forms:
            target = self.table.target_of_name(text)
            rule = self.table.forms[text][0].rule
            if target is None:
                self.verdict_at(
                    start,
                    LEFT,
                    text,
                    None,
                    rule,
                    "in the body of a macro, and MIOpen takes other arguments: port it by hand",
                )
            else:
                helped = target.startswith("dualdnnPort")
                self.verdict_at(start, HELPED if helped else REWRITTEN, text, target, rule, "in the body of a macro")
            return target
        if text in self.table.types:
            return self.table.types[text]
        if text in self.table.enumerators:
            if self.table.enumerators[text] is None:
                self.note_at(start, "no counterpart", f"{text} has no counterpart in MIOpen")
            return self.table.enumerators[text]
        kind = "no counterpart" if self.table.knows(text) else "unknown"
        self.note_at(start, kind, f"{text} in the body of a macro")
        return None

    def string(self, node: Any) -> None:
        for match in NAME.finditer(node.text):
            if self.table.knows(match.group().decode()):
                self.note_at(
                    node.start_byte + match.start(),
                    "string",
                    f"{match.group().decode()} stands in a string, which is not touched",
                )

    # --- verdicts and notes ---

    def rename(self, node: Any, target: str) -> None:
        self.edits.replace(node.start_byte, node.end_byte, target.encode())

    def verdict(self, node: Any, verdict: str, function: str, target: str | None, rule: str, message: str) -> None:
        row, column = node.start_point
        self.ported.verdicts.append(Verdict(row + 1, column + 1, verdict, function, target, rule, message))

    def verdict_at(self, at: int, verdict: str, function: str, target: str | None, rule: str, message: str) -> None:
        self.ported.verdicts.append(Verdict(*self.position(at), verdict, function, target, rule, message))

    def note(self, node: Any, kind: str, message: str) -> None:
        self.note_at(node.start_byte, kind, message)

    def note_at(self, at: int, kind: str, message: str) -> None:
        self.ported.notes.append(Note(*self.position(at), kind, message))
        if self.ported.notes[-1].is_open:
            self.noted.add(at)

    def position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1


def _blanked(definition: re.Match[bytes]) -> bytes:
    """Return a definition with spaces for its comments, and a continued line for each line of a comment."""

    def spaces(found: re.Match[bytes]) -> bytes:
        text = found.group()
        if text.startswith(b'"') or b"\n\n" in text:
            return text
        return re.sub(rb"[^\n]\n", b"\\\\\n", re.sub(rb"[^\n]", b" ", text))

    return _COMMENT.sub(spaces, definition.group())


def nodes(root: Any) -> Iterator[Any]:
    """Yield all nodes in the order of the text, without recursion: files nest as deep as they like."""
    cursor = root.walk()
    while True:
        yield cursor.node
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def called(node: Any) -> Any:
    """Return the identifier that a call names, without its namespaces; None where an expression is called."""
    name = node.child_by_field_name("function")
    while name is not None and name.type == "qualified_identifier":
        name = name.child_by_field_name("name")
    return name if name is not None and name.type == "identifier" else None


def defined_names(text: bytes) -> set[str]:
    """Return the functions, macros and classes of this text whose names look like cuDNN's."""
    found = re.findall(rb"^[ \t]*#[ \t]*define[ \t]+((?:cudnn|CUDNN_)[A-Z]\w*)", text, re.M)
    found += re.findall(rb"\b(?:class|struct|union|enum|using)\s+(cudnn[A-Z]\w*)", text)
    found += re.findall(rb"\b(cudnn[A-Z]\w*)\s*\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*(?:const\s*)?\{", text)
    return {name.decode() for name in found}
