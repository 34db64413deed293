"""Ports Python clients of ``dualdnn.api.cudnn``: calls and enumerators become ``dualdnn.api.miopen``'s."""

from __future__ import annotations

import re
from typing import Any

from dualdnn.api.document import functions as cudnn_functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions

from . import arguments, integers
from .edits import Edits
from .forms import Form, Table
from .rewriting import nodes, parser
from .verdicts import HELPED, LEFT, REWRITTEN, Note, PortedFile, Verdict

HELPERS = "dualdnn_port_miopen"


def port_python(path: str, text: bytes, table: Table) -> PortedFile:
    """Port one file that says ``from dualdnn.api import cudnn`` or ``import dualdnn.api.cudnn as name``."""
    return _PythonFile(path, text, table).port()


class _PythonFile:
    def __init__(self, path: str, text: bytes, table: Table) -> None:
        self.table, self.text = table, text
        self.edits = Edits(text)
        self.ported = PortedFile(path, text, text)
        # The name of cuDNN's module in this file has the name that MIOpen's will have.
        self.modules: dict[bytes, bytes] = {}
        self.frozen_until = 0
        self.in_call: set[int] = set()  # These attributes are called, and already handled.

    def port(self) -> PortedFile:
        root = parser("python").parse(self.text).root_node
        found = list(nodes(root))
        for node in found:
            if node.type in ("import_from_statement", "import_statement"):
                self.imported(node)
        if self.modules:
            for node in found:
                if node.type == "call":
                    self.call(node)
                elif node.type == "attribute" and node.start_byte not in self.in_call:
                    self.attribute(node)
        for node in found:
            if node.type == "string_content":
                self.string(node)
        self.ported.after = self.edits.apply()
        return self.ported

    def imported(self, node: Any) -> None:
        source = node.text
        if re.match(rb"from\s+dualdnn\.api\s+import\b", source):
            for name in node.children_by_field_name("name"):
                bare = name.child_by_field_name("name") if name.type == "aliased_import" else name
                alias = name.child_by_field_name("alias") if name.type == "aliased_import" else None
                if bare.text == b"cudnn":
                    self.modules[alias.text if alias else b"cudnn"] = alias.text if alias else b"miopen"
                    self.edits.replace(bare.start_byte, bare.end_byte, b"miopen")
                    self.add_helpers(node)
        elif match := re.fullmatch(rb"import\s+dualdnn\.api\.cudnn\s+as\s+(\w+)", source):
            self.modules[match[1]] = match[1]
            name = node.children_by_field_name("name")[0].child_by_field_name("name")
            self.edits.replace(name.start_byte, name.end_byte, b"dualdnn.api.miopen")
            self.add_helpers(node)
        elif re.match(rb"(?:from|import)\s+dualdnn\.api\.cudnn\b", source):
            self.verdict(node, LEFT, "import", None, "context", "import the module: from dualdnn.api import cudnn")

    def add_helpers(self, node: Any) -> None:
        if b"import " + HELPERS.encode() in self.text:
            return
        indent = self.text[self.text.rfind(b"\n", 0, node.start_byte) + 1 : node.start_byte]
        newline = b"\r\n" if b"\r\n" in self.text else b"\n"
        self.edits.replace(node.end_byte, node.end_byte, newline + indent + b"import " + HELPERS.encode())

    def call(self, node: Any) -> None:
        attribute = node.child_by_field_name("function")
        if not self.is_ours(attribute) or not attribute.child_by_field_name("attribute").text.startswith(b"cudnn"):
            return
        function = attribute.child_by_field_name("attribute").text.decode()
        if function in self.table.types and function in ENUMERATIONS:
            return self.numbers(attribute, list(arguments.of_call(node)), [function])  # Numbers become enumerators.
        self.in_call.add(attribute.start_byte)
        if node.start_byte < self.frozen_until:
            return self.verdict(
                attribute, LEFT, function, None, "context", "it stands inside a call that is left as it was"
            )
        if function not in self.table.forms:
            known = self.table.knows(function)
            message = "the guide has no counterpart: port it by hand" if known else "it is not in cuDNN 8.0.3"
            return self.leave(node, attribute, function, "outside" if known else "unknown", message)
        form, listed = self.table.forms[function][0], node.child_by_field_name("arguments")
        if node.has_error or listed.type != "argument_list":
            return self.leave(node, attribute, function, form.rule, "its arguments could not be read")
        given = list(arguments.of_call(node))
        if function == "cudnnCreate":  # Both modules choose the backend by keywords.
            return self.becomes(attribute, REWRITTEN, function, form.miopen or "", form)
        plain = not any(a.type in ("keyword_argument", "list_splat", "dictionary_splat") for a in given)
        python = _for_python(form)
        decision = None
        if plain and len(given) == len(python.parameters):
            decision = arguments.decide(python, given, {}, self.literal, _number)
            if not decision.refused:
                self.numbers(attribute, given, integers.parameter_kinds(function, python.parameters))
        elif plain:
            return self.leave(
                node, attribute, function, form.rule, f"it has {len(given)} arguments, not {len(python.parameters)}"
            )
        if decision and decision.refused:
            return self.leave(node, attribute, function, form.rule, decision.refused)
        if decision and decision.direct and python.is_rename:
            self.becomes(attribute, REWRITTEN, function, form.miopen or "", form)
        elif form.helper:
            self.becomes(attribute, HELPED, function, form.helper, form)
        elif python.is_rename and not any(a.type == "keyword_argument" for a in given):
            self.becomes(attribute, REWRITTEN, function, form.miopen or "", form)
        else:
            self.leave(
                node,
                attribute,
                function,
                form.rule,
                "its arguments are not written out in their order: port it by hand",
            )

    def numbers(self, attribute: Any, given: list[Any], kinds: list[str | None]) -> None:
        """Translate the numbers among arguments of enumeration types."""
        for argument, kind in zip(given, kinds, strict=False):
            if kind is None or kind not in self.table.types:
                continue
            for leaf in integers.values(argument):
                value = integers.number(leaf)
                name = integers.enumerator_of(kind, value) if value is not None else None
                target = self.table.enumerators.get(name or "")
                text = leaf.text.decode("utf-8", "replace")
                if target:
                    self.edits.replace(leaf.start_byte, leaf.end_byte, self.qualified(attribute, target))
                    self.note(leaf, "check", f"the number {text} is {name}, here {target}")
                elif value is not None:
                    self.note(leaf, "integer", f"the number {text} is {name or f'not a {kind}'}: port it by hand")
                elif leaf.type != "attribute" and attribute.child_by_field_name("attribute").text.decode() == kind:
                    self.note(
                        leaf, "integer", f"{text} is a number of {kind}: MIOpen numbers its enumerators otherwise"
                    )

    def becomes(self, attribute: Any, verdict: str, function: str, target: str, form: Form) -> None:
        self.verdict(attribute, verdict, function, target, form.rule, form.why if verdict == HELPED else "")
        self.edits.replace(attribute.start_byte, attribute.end_byte, self.qualified(attribute, target))

    def attribute(self, node: Any) -> None:
        """Port an enumerator, a type, or a function that is not called here."""
        if not self.is_ours(node) or node.start_byte < self.frozen_until:
            return
        name = node.child_by_field_name("attribute").text.decode()
        target = (
            "MiopenError" if name == "CudnnError" else self.table.types.get(name) or self.table.enumerators.get(name)
        )
        if name in self.table.forms:
            target = self.table.target_of_name(name)
        if target:
            self.edits.replace(node.start_byte, node.end_byte, self.qualified(node, target))
        else:
            self.note(
                node,
                "no counterpart" if self.table.knows(name) else "unknown",
                f"{name} has no counterpart in the guide",
            )

    def is_ours(self, node: Any) -> bool:
        return node is not None and node.type == "attribute" and node.child_by_field_name("object").text in self.modules

    def qualified(self, attribute: Any, target: str) -> bytes:
        module = self.modules[attribute.child_by_field_name("object").text]
        return (
            (HELPERS.encode() if target.startswith(("dualdnnPort", "DUALDNN_PORT_")) else module)
            + b"."
            + target.encode()
        )

    def literal(self, node: Any) -> str | None:
        is_name = self.is_ours(node)
        return node.child_by_field_name("attribute").text.decode() if is_name else None

    def string(self, node: Any) -> None:
        for match in re.finditer(rb"\bcudnn[A-Z]\w+", node.text):
            if match.group().decode() in cudnn_functions():
                self.note(node, "string", f"{match.group().decode()} stands in a string, which is not touched")

    def leave(self, node: Any, attribute: Any, function: str, rule: str, message: str) -> None:
        self.verdict(attribute, LEFT, function, None, rule, message)
        self.frozen_until = max(self.frozen_until, node.end_byte)

    def verdict(self, node: Any, verdict: str, function: str, target: str | None, rule: str, message: str) -> None:
        row, column = node.start_point
        self.ported.verdicts.append(Verdict(row + 1, column + 1, verdict, function, target, rule, message))

    def note(self, node: Any, kind: str, message: str) -> None:
        row, column = node.start_point
        self.ported.notes.append(Note(row + 1, column + 1, kind, message))


def _for_python(form: Form) -> Form:
    """Return the form without host outputs, which calls return."""
    from dataclasses import replace

    if form.cudnn not in cudnn_functions():
        return form
    passed = {p.name for p in cudnn_functions()[form.cudnn].arguments}
    parameters = tuple(name for name in form.parameters if name in passed)
    if form.miopen is None or form.miopen not in miopen_functions():
        return replace(form, parameters=parameters)
    returned = [p.is_returned for p in miopen_functions()[form.miopen].parameters]
    kept = tuple(a for a, gone in zip(form.arguments, returned, strict=True) if not gone)
    return replace(form, parameters=parameters, arguments=kept)


def _number(node: Any) -> float | None:
    return float(node.text) if node.type in ("integer", "float") and re.fullmatch(rb"[\d.]+", node.text) else None
