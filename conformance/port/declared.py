"""Finds the declarations of one C file, and deduces types from the values that variables get."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from . import containers
from .expressions import DEDUCED, KIND_OF_NAME, Expressions, declarator, dimensions, record
from .integers import bare, code, is_integer, parameter_kinds, values
from .passing import passing_macros

_NUMBERS = rb"[-+]?(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*"
_COMPARED_IN_TEXT = re.compile(rb"(?:[=!]=[ \t(]*|\bcase[ \t]+)([-+]?\w+)|\b(\d\w*)[ \t)]*[=!]=")
_MACRO = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^()\n]*\))?[ \t]+((?:[^\n\\]|\\\r?\n|\\.)*)", re.M)
# An index, a template argument or a side of a comparison in a macro is not a value of it, nor is a comment.
_NO_VALUE = re.compile(rb"/\*.*?\*/|//.*|\[[^\[\]]*\]|<[^<>?]*>|[=!<>]=?[ \t(]*[-+]?\d\w*|\b\d\w*[ \t)]*[=!<>]=?", re.S)
_STATEMENT = re.compile(rb"[{;\"]|cudnn")
_MACRO_OF_ENUMERATOR = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(*[ \t]*(CUDNN_\w+)[ \t]*\)*[ \t]*\r?$", re.M
)
_MACRO_OF_NAME = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([\w \t]*\w)[ \t]*(?://.*|/\*.*)?\r?$", re.M)
_MACRO_OF_ARGUMENTS = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^\n\\]*(?:\\\r?\n?[^\n\\]*)*)", re.M)
_CALLED = re.compile(
    r"(?:.*\bfunction< ?)?(?!decltype)(\w+) ?\(.*", re.DOTALL
)  # This is the type of a function, or of a pointer to one.
_LISTED = re.compile(r"\(([^()]*)\) ?>?$")  # the parameters of such a type
_GIVEN = ("init_declarator", "declaration")  # The second one stands in a condition: ``if (auto s = f())``.
_PROTOTYPES = ("declaration", "field_declaration", "type_definition", "alias_declaration")
_DECLARATIONS = frozenset(
    {
        "declaration",
        "parameter_declaration",
        "optional_parameter_declaration",
        "field_declaration",
        "function_definition",
    }
)
EVERYWHERE = 1 << 62  # end of the scope of what a header declares
# These are what a header tells the files that include it, and a file the bodies of its macros.
SHARED: dict[str, type[dict[Any, Any] | set[Any]]] = {
    "macros": set,  # They stand for numbers.
    "calculating": set,  # macros that choose among their arguments
    "comparing": dict,  # macro that compares with numbers -> how it takes an argument: "bool" if the numbers are 0
    "passing": dict,
    "constants": dict,
    "records": dict,
    "results": dict,
    "fields": dict,
    "functions": dict,
    "callable": dict,
    "converted": dict,
    "aliases": dict,
    "taken": dict,  # type of a function -> its parameters
    "types": set,  # A template takes these names of types.
    "templates": set,  # They have a parameter of an integer type.
    "sizes": dict,  # (record, member) -> sizes
    "constructed": set,  # (class, member) that a constructor sets, and (class, b"") of classes with a constructor
    "macro_arguments": dict,
    "generic": dict,  # function -> place, name and beginning of the scope of each parameter whose type is deduced
}


class Declared(Expressions):
    """Hold what one file of C declares: variables with their scopes, fields, functions, templates, aliases, macros of numbers.

    macro_arguments: what the body of a macro takes its arguments as, by their places. A variable of an integer type, or
    ``auto``, that is given a value of an enumeration type *carries* that type.
    """

    comparing: dict[bytes, str]
    macro_arguments: dict[bytes, dict[int, str]]
    taken: dict[str, list[str]]
    types: set[str]
    templates: set[bytes]
    sizes: dict[tuple[str, bytes], list[int | None]]
    constructed: set[tuple[str, bytes]]
    generic: dict[bytes, list[tuple[int, bytes, int]]]

    def __init__(
        self,
        root: Any,
        text: bytes,
        found: Sequence[Any],
        kinds: Iterable[str],
        called: Callable[[Any], Any],
        outer: Declared | None = None,
    ) -> None:
        """Read the declarations below ``root``. outer: the declarations of the file, where ``root`` is the body of
        one of its macros, or of the headers that the file includes."""
        self.kinds, self.called, self.root = frozenset(kinds) & frozenset(ENUMERATIONS), called, root
        for name in SHARED:
            setattr(self, name, _copied(getattr(outer, name)) if outer else SHARED[name]())
        self.nested = {}
        # Only what headers declare outside of functions is seen here.
        listed = outer.variables.items() if outer else ()
        self.variables = {name: around for name, all_ in listed if (around := [v for v in all_ if v[1] == EVERYWHERE])}
        self.comparing |= dict(_comparing(text))
        self.passing |= passing_macros(text)
        self.calculating |= {macro[1] for macro in _MACRO_OF_ARGUMENTS.finditer(text) if b"?" in macro[2]}
        self.constants |= dict(_enumerators(text))
        for macro in _MACRO_OF_NAME.finditer(text):
            self.aliases[macro[1].decode()] = bare(macro[2].decode())
        self.macro_arguments = (
            outer.macro_arguments if outer else self.macro_arguments
        )  # The file's is that of its bodies.
        # These are the name and the arguments of the macro whose body this is.
        self.macro, self.places = b"", dict[bytes, int]()
        self.carried = {}
        for node in found:
            if node.type in ("alias_declaration", "type_definition"):
                self._alias(node)
            elif node.type == "template_declaration":
                self._template(node)
            elif node.type == "enumerator":
                self.macros.add(node.child_by_field_name("name").text)
            elif node.type in _DECLARATIONS:
                self._declaration(node)
            elif node.type == "field_initializer" and len(code(node)) > 1 and code(code(node)[1]):
                self.constructed.add((record(node), code(node)[0].text))
            elif node.type == "function_declarator" and declarator(node)[0] == (record(node).encode() or None):
                self.constructed.add((record(node), b""))
        for macro in _MACRO.finditer(text):
            body = _NO_VALUE.sub(b" ", macro[2])
            words = set(re.findall(rb"\b\w+", body))
            if not _STATEMENT.search(body) and (words & self.macros or any(word[:1].isdigit() for word in words)):
                self.macros.add(macro[1])
        for node in found:
            self._deduce(node)
            self._carries(node)

    def _alias(self, node: Any) -> None:
        name, kind = node.child_by_field_name("name"), self.named(node)
        text, function = (
            (name.text, None) if name is not None else declarator(node.child_by_field_name("declarator"))[::2]
        )
        if text is None:
            return
        if function is not None:
            self.callable[text.decode()] = kind
            self.taken[text.decode()] = self._taken(function)
        elif match := _CALLED.fullmatch(kind):
            self.callable[text.decode()] = self.bare(match[1])
            self.taken[text.decode()] = self._listed(kind)
        elif text.decode() != kind:
            self.aliases[text.decode()] = kind

    def _template(self, node: Any) -> None:
        parameters = code(node.child_by_field_name("parameters"))
        self.types |= {
            code(p)[0].text.decode("utf-8", "replace")
            for p in parameters
            if p.type == "type_parameter_declaration" and code(p)
        }
        if any(p.type.endswith("parameter_declaration") and is_integer(self.named(p)) for p in parameters):
            self.templates |= {
                child.child_by_field_name("name").text for child in code(node) if child.child_by_field_name("name")
            }

    def _declaration(self, node: Any) -> None:
        kind = self.named(node)
        for each in node.children_by_field_name("declarator"):
            if each.type == "operator_cast":
                self.converted[record(node)] = self.named(each)
            name, depth, function = declarator(each)
            if name is None or name.startswith(b"operator"):
                if name == b"operator()" and depth == 0:
                    self.callable[record(node)] = kind
                continue
            if function is not None:
                kind = self.trailing(function) or kind
                parameters = self._taken(function) or self._taken_by_name(node, function)
                self._generic(name, function)
                made = (kind if depth == 0 else "", parameters)
                self.functions[name] = made if self.functions.get(name, made) == made else ("", [])
                self.results[name] = (
                    (kind, depth) if self.results.get(name, (kind, depth)) == (kind, depth) else ("", 0)
                )
            elif node.type == "field_declaration":
                self.fields.setdefault(name, set()).add((kind, depth))
                self.records.setdefault(record(node), {})[name] = (kind, depth)
                sizes = dimensions(each)
                if sizes:
                    self.sizes[record(node), name] = sizes
                if kind in self.callable:
                    self.functions[name] = (self.callable[kind], self.taken.get(kind, []))
            elif match := _CALLED.fullmatch(kind):
                self.functions[name] = (self.bare(match[1]), self._listed(kind))
            else:
                self._variable_of(node, name, (kind, depth))

    def _taken(self, function: Any) -> list[str]:
        """Return the types of a function's parameters, empty for pointers."""
        return [
            self.named(p) if not declarator(p.child_by_field_name("declarator"))[1] else ""
            for p in _parameters(function)
        ]

    def _listed(self, kind: str) -> list[str]:
        """Return the types of the parameters in the text of a function's type."""
        found = _LISTED.search(kind)
        texts = [self.bare(text) for text in found[1].split(",")] if found else []
        return ["" if "*" in text else self.bare(text.rpartition(" ")[0] or text) for text in texts]

    def _parameters_of(self, value: Any) -> list[str]:
        """Return the types of the parameters of a function that is named by an expression."""
        while value.type in ("pointer_expression", "parenthesized_expression") and code(value):
            value = code(value)[0]
        return self.documented(value.text) or self.functions.get(value.text, ("", []))[1]

    def documented(self, name: bytes) -> list[str]:
        """Return the enumeration types of the parameters of a documented function, empty for other types and names."""
        text = name.decode("utf-8", "replace")
        names = [parameter.name for parameter in functions()[text].parameters] if text in functions() else []
        return [kind or "" for kind in parameter_kinds(text, names)] if names else []

    def taken_at(self, name: bytes, at: int) -> list[str]:
        """Return the types of the parameters of what a name calls at a place, empty where this file does not tell."""
        around = self._variable(name, at)
        return self.taken.get(around[2], []) if around else self.functions.get(name, ("", []))[1]

    def _taken_by_name(self, node: Any, function: Any) -> list[str]:
        """Return the types of the parameters that are declared behind the list, as C did before its first standard."""
        declared = {
            name: self.named(child) if depth == 0 else ""
            for child in code(node)
            if child.type == "declaration"
            for name, depth, _ in map(declarator, child.children_by_field_name("declarator"))
        }
        listed = function.child_by_field_name("parameters") if node.type == "function_definition" else None
        return [declared.get(name.text, "") for name in code(listed)] if listed is not None and declared else []

    def _variable_of(self, node: Any, name: bytes, kind: tuple[str, int]) -> None:
        self.variables.setdefault(name, []).append((*self._scope(node), *kind))

    def _generic(self, name: bytes, function: Any) -> None:
        for place, parameter in enumerate(_parameters(function)):
            taken = declarator(parameter.child_by_field_name("declarator"))[0]
            if taken is not None and self.named(parameter) in (*DEDUCED, *self.types):
                self.generic.setdefault(name, []).append((place, taken, self._scope(parameter)[0]))

    def _deduce(self, node: Any) -> None:
        """Find the types of variables, results and parameters that are deduced from a value."""
        if node.type in _GIVEN and node.child_by_field_name("value") is not None:
            target, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            self._bind(node, target, self.declared(value), value)
            if value.type == "lambda_expression" and (name := declarator(target)[0]) is not None:
                self._generic(name, value.child_by_field_name("declarator"))
        elif node.type == "for_range_loop":
            kind, depth = self.declared(node.child_by_field_name("right"))
            each = (self.bare(containers.each(kind)), 0) if depth == 0 else (kind, depth - 1)
            target, stated = node.child_by_field_name("declarator"), self.named(node)
            name = declarator(target)[0]
            if name is not None:
                self._variable_of(node.child_by_field_name("body"), name, each if stated in DEDUCED else (stated, 0))
            self._bind(node.child_by_field_name("body"), target, each)
        elif node.type == "lambda_capture_initializer":
            name, value = node.child_by_field_name("left").text, node.child_by_field_name("right")
            self._variable_of(node, name, self.value_type(value))
        elif node.type == "function_definition" and self.named(node) in DEDUCED:
            name = declarator(node.child_by_field_name("declarator"))[0]
            if name is not None:
                self.functions[name] = (self.returned(node), self.functions.get(name, ("", []))[1])
        elif node.type == "declaration":
            self._made_in_parentheses(node)
        elif node.type == "call_expression":
            self._given(node)

    def _bind(self, node: Any, target: Any, found: tuple[str, int], value: Any = None) -> None:
        """Give a variable, or the names of a structured binding, the type of a value."""
        binding = target
        while binding is not None and binding.type == "reference_declarator":
            binding = code(binding)[0]
        if binding is not None and binding.type == "structured_binding_declarator":
            names = code(binding)
            for each, kind in zip(names, self.members(*found, len(names)), strict=False):
                self._variable_of(node, each.text, kind)
            return
        name = declarator(target)[0]
        around = self._variable(name, node.start_byte) if name is not None else None
        if name is None or around is None or value is None:
            return
        self._settle(name, around, found if around[2] in DEDUCED else (self._made(around[2], code(value)), 0))

    def _settle(self, name: bytes, around: tuple[int, int, str, int], found: tuple[str, int]) -> None:
        """Replace the type of a variable where the other one is known."""
        if found[0]:
            self.nested.pop(name, None)
            self.variables[name].remove(around)
            self.variables[name].append((*around[:2], *found))

    def _made_in_parentheses(self, node: Any) -> None:
        """Read ``std::pair both(t, n)``, which looks like the declaration of a function."""
        for each in node.children_by_field_name("declarator"):
            name, _, function = declarator(each)
            given = [p.child_by_field_name("type") for p in _parameters(function)]
            if name is not None and given and (kind := self._made(self.named(node), given)):
                self._variable_of(node, name, (kind, 0))

    def _given(self, node: Any) -> None:
        """Read what arguments show: the type of a parameter, or of a variable that a documented function takes."""
        name, given = self.callee(node), code(node.child_by_field_name("arguments"))
        if name is None:
            return
        element, depth = self.declared(given[0]) if given else ("", 0)
        for function in given[1:] if depth == 1 else ():  # This reads std::for_each(begin, end, [](auto each) { ... }).
            for parameter in _parameters(function.child_by_field_name("declarator")):
                taken = declarator(parameter.child_by_field_name("declarator"))[0]
                around = self._variable(taken, parameter.start_byte) if taken is not None else None
                if taken is not None and around is not None and around[2] in DEDUCED:
                    self._settle(taken, around, (element, 0))
        for place, parameter, at in self.generic.get(name, ()):
            if place < len(given) and (kind := self.kind_of(given[place])[0]):
                self.carried[parameter, at] = kind
        text = name.decode("utf-8", "replace")
        names = [parameter.name for parameter in functions()[text].parameters] if text in functions() else []
        for argument, wanted in zip(given, parameter_kinds(text, names), strict=False):
            around = self._variable(argument.text, argument.start_byte) if argument.type == "identifier" else None
            if wanted in self.kinds and around is not None and around[2] in ("", *DEDUCED):
                self.carried.setdefault((argument.text, around[0]), wanted)

    def _carries(self, node: Any) -> None:
        """Note a declaration or an assignment that gives an enumerator to an integer variable, or to an ``auto``
        one."""
        if node.type in _GIVEN and node.child_by_field_name("value") is not None:
            target, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            name = declarator(target)[0]
        elif node.type == "optional_parameter_declaration":
            name, value = (
                declarator(node.child_by_field_name("declarator"))[0],
                node.child_by_field_name("default_value"),
            )
        elif node.type == "assignment_expression":
            target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            name = target.text if target.type == "identifier" else None
        else:
            return
        around = self._variable(name, node.start_byte) if name is not None else None
        if around is not None and around[2] in DEDUCED and (result := self.function_of(value)):
            assert name is not None
            self.functions[name] = (result, self._parameters_of(value))
        if around is None or not (around[2] in DEDUCED or is_integer(around[2])):
            return
        assert name is not None
        found = {kind for leaf in values(value) if (kind := self.kind_of(leaf)[0])}
        if len(found) == 1:
            self.carried[name, around[0]] = found.pop()

    def _scope(self, node: Any) -> tuple[int, int]:
        around = node.parent
        scopes = (
            "compound_statement",
            "function_definition",
            "for_statement",
            "for_range_loop",
            "lambda_expression",
            "template_declaration",
        )
        listed = None
        while around is not None and around.type not in scopes:
            if listed is not None and around.type in _PROTOTYPES:
                return listed.start_byte, listed.end_byte
            listed = around if around.type == "parameter_list" else listed
            around = around.parent
        return (around.start_byte, around.end_byte) if around is not None else (0, self.root.end_byte)


def _copied(known: Any) -> Any:
    is_nested = isinstance(known, dict) and isinstance(next(iter(known.values()), None), dict | set | list)
    return {name: copy(value) for name, value in known.items()} if is_nested else copy(known)


def _enumerators(text: bytes) -> Iterator[tuple[str, str]]:
    for macro in _MACRO_OF_ENUMERATOR.finditer(text):
        if kind := KIND_OF_NAME.get(macro[2].decode()):
            yield macro[1].decode(), kind


def _comparing(text: bytes) -> Iterator[tuple[bytes, str]]:
    for macro in _MACRO_OF_ARGUMENTS.finditer(text):
        numbers = [found[1] or found[2] for found in _COMPARED_IN_TEXT.finditer(macro[2])]
        numbers = [number for number in numbers if re.fullmatch(_NUMBERS, number)]
        if numbers:
            yield macro[1], "bool" if all(number == b"0" for number in numbers) else ""


def _parameters(function: Any) -> list[Any]:
    listed = function.child_by_field_name("parameters") if function is not None else None
    return [p for p in code(listed) if p.type.endswith("parameter_declaration")] if listed is not None else []
