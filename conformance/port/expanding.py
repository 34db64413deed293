"""Expands the macros of a C file, and remembers where each token of the result comes from.

Rows that one macro gives to another, rows of an included file and pasted numbers reach an enumerator only after the
preprocessor. ``reached`` reads the expanded text, and goes back to the place that wrote the number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from .tree import C_SUFFIXES

_PLAIN = rb"""(?:u8|[uUL])?R"(?P<raw>[^()\\\s]{0,16})\((?s:.)*?\)(?P=raw)"|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|'\w|[\w.])*
|(?:u8|[uUL])?"(?:\\(?s:.)|[^"\\\n])*"|'(?:\\(?s:.)|[^'\\\n])*'|/\*(?s:.)*?\*/|//(?:\\\r?\n|[^\n])*|(?:[ \t\r\f\v]|\\\r?\n)+|\#\#|\n
|<=>|->\*?|\+\+|--|<<=?|>>=?|[-<>=!+*/%&|^]=|&&|\|\||::|\.\.\.|(?s:.)"""
_DIRECTIVE = rb"""^[ \t]*\#[ \t]*(?P<directive>\w*)(?P<rest>(?:/\*(?s:.)*?\*/|//(?:\\\r?\n|[^\n])*|"(?:\\.|[^"\\\n])*"|\\\r?\n|[^\n])*)"""
_TOKEN = re.compile(_DIRECTIVE + rb"|" + _PLAIN, re.M | re.X)
_DEFINE = re.compile(rb"\s*(\w+)(?:\(([^()]*)\))?((?s:.)*)")
_INCLUDE = re.compile(rb'\s*(["<][^">\n]+[">])')
_GUARD = re.compile(rb"^[ \t]*#[ \t]*(?:pragma[ \t]+once|ifndef[ \t]+(\w+)\s+#[ \t]*define[ \t]+\1\b)", re.M)
_HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ""})
MAX_TOKENS = 500_000  # per file; a macro can double its argument at each level
MAX_INCLUDED = 40  # levels of files without a guard, which may include themselves
MAX_CHOICES = 16  # definitions of one macro, in the arms of #if
MAX_EXPANSIONS = 24  # per file; each takes one definition of every macro
ELSEWHERE = -1  # origin: another file or a pasted token
OF_A_SOURCE = -2  # origin: the plain text of a file that is ported itself
Paths = Callable[[Path, bytes], Iterator[Path]]


class Token(NamedTuple):
    """Hold the text of a token, its place in the file or an origin, and the macros that it no longer stands for."""

    text: bytes
    at: int
    hidden: frozenset[bytes] = frozenset()


@dataclass
class Macro:
    """Hold a definition; ``names`` is None for a macro without parentheses, ``at`` the place of its body.

    around: the condition of the outermost ``#if`` around it. Macros of one condition change together.
    """

    names: list[bytes] | None
    text: bytes
    at: int
    around: bytes

    @cached_property
    def body(self) -> list[Token]:
        return [token for token in _tokens(self.text, self.at) if not _is_space(token.text)]


@dataclass
class Expansion:
    """Holds the expanded text. Each piece begins at a place of it, and has an origin, and where its use begins and ends.

    The use of plain text is (-1, -1). left: places that were not followed, each with the reason.
    """

    text: bytes = b""
    begins: list[int] = field(default_factory=list)
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    left: list[tuple[int, str]] = field(default_factory=list)
    choices: int = 1

    def origin(self, place: int) -> tuple[int, int, int]:
        """Return the origin of a place, and the use of a macro or the include that it comes from."""
        index = bisect_right(self.begins, place) - 1
        at, begin, end = self.pieces[index]
        return (at + place - self.begins[index] if at >= 0 else at), begin, end


def expansions(path: Path, text: bytes, paths: Paths, read: Callable[[Path], bytes | None]) -> Iterator[Expansion]:
    """Yield the text with its macros expanded, once for each definition in the arms of an ``#if``.

    Then each pair of conditions meets in different arms. paths: where the name of an include leads, from a file. read:
    the bytes of such a file, or None.
    """
    choices, conditions, seen = 1, list[bytes](), set[tuple[int, int]]()
    while len(seen) < MAX_EXPANSIONS:
        bits = (len(conditions) - 1).bit_length() if conditions else 0
        wanted = ((choice, bit) for bit in range(-1, bits) for choice in range(min(choices, MAX_CHOICES)))
        now = next((each for each in wanted if each not in seen), None)
        if now is None:
            return
        seen.add(now)
        made = _Expander(path, text, paths, read, conditions, *now).made
        yield made
        choices = max(choices, made.choices)


def _tokens(text: bytes, at: int) -> Iterator[Token]:
    for found in _TOKEN.finditer(text):
        yield Token(found.group(), at + found.start() if at >= 0 else at)


def _is_space(text: bytes) -> bool:
    return not text.strip() or text[:2] in (b"/*", b"//") or text[:1] == b"\\"


def _outside(text: bytes) -> int:
    """Return how deep in ``#if`` a file begins: the ``#ifndef`` of its guard is no choice."""
    guard = _GUARD.search(text)
    return -1 if guard is not None and guard[1] is not None else 0


class _Expander:
    def __init__(
        self,
        path: Path,
        text: bytes,
        paths: Paths,
        read: Callable[[Path], bytes | None],
        conditions: list[bytes],
        choice: int,
        bit: int,
    ) -> None:
        """Expand a file. bit: of the places of the conditions; where it is set, the next definition is chosen."""
        self.made, self.paths, self.read, self.choice = Expansion(), paths, read, choice
        self.conditions, self.bit, self.around = conditions, bit, b""
        self.macros: dict[bytes, list[Macro]] = {}
        self.parts: list[bytes] = []
        self.length, self.count, self.guarded = 0, 0, set[Path]()
        self.site = 0  # where the macro that is expanded, or the include that brings it, stands
        self._file(path, text, 0, None, 0)
        self.made.text = b"".join(self.parts)

    def _file(self, path: Path, text: bytes, origin: int, site: tuple[int, int] | None, depth: int) -> None:
        """Read a file: this one, or one without a guard that is included at a site."""
        found, index, nesting = list(_TOKEN.finditer(text)), 0, _outside(text)
        plain, outside = site or (-1, -1), set(self.macros)
        begin, self.count = 0, self.count + (len(found) if depth else 0)
        while index < len(found):
            each = found[index]
            index += 1
            is_directive, word = each["directive"] is not None, each.group()
            if not is_directive and word not in self.macros:
                continue
            if begin < each.start():
                self._emit(text[begin : each.start()], begin if origin == 0 else origin, plain)
            if is_directive:
                nesting = self._directive(path, each, origin, site, depth, nesting)
            else:
                # Rows of an included file mean what the macros of its includer make of them.
                whose = ELSEWHERE if origin and word in outside else origin
                index = self._use(Token(word, each.start() if origin == 0 else origin), found, index, whose, site)
            begin = found[index - 1].end()
        if begin < len(text):
            self._emit(text[begin:], begin if origin == 0 else origin, plain)

    def _directive(
        self, path: Path, each: re.Match[bytes], origin: int, site: tuple[int, int] | None, depth: int, nesting: int
    ) -> int:
        kind, at = each["directive"], each.start() if origin == 0 else origin
        if kind == b"define" and (macro := _DEFINE.fullmatch(each["rest"])):
            self._define(macro, each.start("rest") + macro.start(3) if origin == 0 else ELSEWHERE, nesting)
        elif kind == b"undef" and nesting <= 0:
            self.macros.pop(each["rest"].split(b"/")[0].strip(), None)
        elif kind in (b"include", b"import", b"include_next") and (name := _INCLUDE.match(each["rest"])):
            here = site or (each.start(), each.end())
            if self._include(path, name[1], here, depth):
                return nesting
        elif kind in (b"if", b"ifdef", b"ifndef"):
            nesting += 1
            self._enter(each, nesting)
        elif kind == b"endif":
            nesting -= 1
        if site is None:
            self._emit(each.group(), at, (-1, -1))
        return nesting

    def _enter(self, each: re.Match[bytes], nesting: int) -> None:
        if nesting == 1:
            plain = re.sub(rb"\bdefined\b|/\*.*?\*/|//.*|[\s()]", b"", each["rest"])
            self.around = each["directive"].replace(b"ifdef", b"if") + plain.replace(b"!", b"n")

    def _define(self, macro: re.Match[bytes], at: int, nesting: int) -> None:
        names = None if macro[2] is None else [name.strip() for name in macro[2].split(b",") if name.strip()]
        made = Macro(names, macro[3], at, self.around)
        before = self.macros.get(macro[1], []) if nesting > 0 else []
        if not any((m.names, m.text.split()) == (names, macro[3].split()) for m in before):
            self.macros[macro[1]] = [*before, made]

    def _include(self, path: Path, name: bytes, site: tuple[int, int], depth: int) -> bool:
        """Read an included file, and return whether its text takes the place of the directive."""
        target = next(self.paths(path, name), None)
        text = self.read(target) if target is not None else None
        suffix = Path(name[1:-1].decode("utf-8", "replace")).suffix
        if target is None or text is None:
            if suffix not in _HEADERS:
                self.made.left.append((site[0], f"{name.decode('utf-8', 'replace')} is not found here"))
            return False
        if _GUARD.search(text):
            if target not in self.guarded:
                self.guarded.add(target)
                self._definitions(target, text, depth)
            return False
        if depth >= MAX_INCLUDED or self.count > MAX_TOKENS:
            return False
        self._file(target, text, OF_A_SOURCE if target.suffix in C_SUFFIXES else ELSEWHERE, site, depth + 1)
        self._emit(b"\n", ELSEWHERE, site)
        return True

    def _definitions(self, path: Path, text: bytes, depth: int) -> None:
        """Read the macros of a header with a guard, and of those that it includes."""
        nesting = _outside(text)
        for each in re.finditer(_DIRECTIVE, text, re.M | re.X):
            kind = each["directive"]
            nesting += (kind in (b"if", b"ifdef", b"ifndef")) - (kind == b"endif")
            if kind in (b"if", b"ifdef", b"ifndef"):
                self._enter(each, nesting)
            if kind == b"define" and (macro := _DEFINE.fullmatch(each["rest"])):
                self._define(macro, ELSEWHERE, nesting)
            elif kind == b"undef" and nesting <= 0:
                self.macros.pop(each["rest"].split(b"/")[0].strip(), None)
            elif kind == b"include" and (name := _INCLUDE.match(each["rest"])) and depth < MAX_INCLUDED:
                target = next(self.paths(path, name[1]), None)
                inner = self.read(target) if target is not None and target not in self.guarded else None
                if target is not None and inner is not None:
                    self.guarded.add(target)
                    self._definitions(target, inner, depth + 1)

    def _emit(self, text: bytes, at: int, use: tuple[int, int]) -> None:
        self.made.begins.append(self.length)
        self.made.pieces.append((at, *use))
        self.parts.append(text)
        self.length += len(text)

    def _use(
        self, token: Token, found: list[re.Match[bytes]], index: int, origin: int, site: tuple[int, int] | None
    ) -> int:
        """Expand the macro that a token names, with what follows it in the text; return the next index."""
        start = found[index - 1].start()
        pending, shown, self.site = [token], list[Token](), (site or (start,))[0]

        def more(skipped: list[Token]) -> Token | None:
            """Return the next token of the text, without spaces, or None before a directive and at the end."""
            nonlocal index
            while index < len(found) and found[index]["directive"] is None:
                each = found[index]
                index += 1
                if not _is_space(each.group()):
                    return Token(each.group(), each.start() if origin == 0 else origin)
                skipped.append(Token(each.group(), each.start() if origin == 0 else origin))
            return None

        while pending:
            self._one(pending, shown, more)
            if self.count > MAX_TOKENS:
                self.made.left.append((self.site, "its macros expand to too much text"))
                shown += reversed(pending)
                break
        end = found[index - 1].end()
        for each in shown:
            self._emit(each.text, each.at, site or (start, end))
            self._emit(b" ", ELSEWHERE, site or (start, end))
        return index

    def _one(
        self, pending: list[Token], shown: list[Token], more: Callable[[list[Token]], Token | None] | None
    ) -> None:
        """Expand the first of the pending tokens, which are kept last first, or show it."""
        token = pending.pop()
        alive = self.macros.get(token.text, []) if token.text not in token.hidden else []
        self.count += 1
        if not alive:
            shown.append(token)
            return
        self.made.choices = max(self.made.choices, len(alive))
        if len(alive) > MAX_CHOICES and self.choice == 0 and self.bit < 0:
            self.made.left.append((self.site, f"{token.text.decode('utf-8', 'replace')} has {len(alive)} definitions"))
        macro = alive[self._chosen(alive[-1].around) % len(alive)] if len(alive) > 1 else alive[0]
        if macro.names is None:
            made = [Token(t.text, t.at, t.hidden | token.hidden | {token.text}) for t in self._body(macro, [])]
            pending += reversed(made)
            return
        skipped: list[Token] = []
        taken = pending.pop() if pending else more(skipped) if more else None
        if taken is None or taken.text != b"(":
            shown += [token, *skipped]
            if taken is not None:
                pending.append(taken)
            return
        given, level = [list[Token]()], 0
        while True:
            each = pending.pop() if pending else more([]) if more else None
            if each is None:  # A directive, or the end of the text, stands among the arguments.
                shown += [token, taken, *(t for one in given for t in one)]
                return
            if each.text == b")" and level == 0:
                break
            level += (each.text == b"(") - (each.text == b")")
            if each.text == b"," and level == 0:
                given.append([])
            else:
                given[-1].append(each)
        hidden = (token.hidden & each.hidden) | {token.text}
        pending += reversed([Token(t.text, t.at, t.hidden | hidden) for t in self._body(macro, given)])

    def _chosen(self, around: bytes) -> int:
        """Return which definition a condition chooses in this expansion."""
        if around not in self.conditions:
            self.conditions.append(around)
        return self.choice + (self.bit >= 0 and self.conditions.index(around) >> self.bit & 1)

    def _body(self, macro: Macro, given: list[list[Token]]) -> list[Token]:
        """Return the body of a macro with the arguments in the places of its parameters."""
        names = [name.removesuffix(b"...") or b"__VA_ARGS__" for name in macro.names or []]
        if (macro.names or [b""])[-1].endswith(b"..."):
            rest = given[len(names) - 1 :]
            given = [*given[: len(names) - 1], [t for one in rest for t in (Token(b",", ELSEWHERE), *one)][1:]]
        raw = dict(zip(names, given, strict=False))
        return [token for token in self._replaced(macro.body, raw, {}) if token.text]

    def _replaced(
        self, body: list[Token], raw: dict[bytes, list[Token]], expanded: dict[bytes, list[Token]]
    ) -> list[Token]:
        made: list[Token] = []
        place = 0
        while place < len(body):
            token, after = body[place], body[place + 1] if place + 1 < len(body) else Token(b"", ELSEWHERE)
            place += 1
            if token.text == b"#" and after.text in raw:
                made.append(
                    Token(b'"' + b" ".join(t.text for t in raw[after.text]).replace(b'"', b"'") + b'"', ELSEWHERE)
                )
                place += 1
            elif token.text == b"##" and made and after.text:
                right = raw.get(after.text, [after]) or [Token(b"", ELSEWHERE)]
                place += 1
                left = made.pop()
                if left.text == b"," and after.text in raw:  # GNU's way to drop a comma before no arguments.
                    made += [left, *right] if right[0].text else []
                elif left.text and right[0].text:
                    made += [Token(left.text + right[0].text, ELSEWHERE), *right[1:]]
                else:
                    made += right if right[0].text else [left]
            elif token.text == b"__VA_OPT__" and after.text == b"(":
                level, end = 1, place + 1
                while end < len(body) and level:
                    level += (body[end].text == b"(") - (body[end].text == b")")
                    end += 1
                if raw.get(b"__VA_ARGS__"):
                    made += self._replaced(body[place + 1 : end - 1], raw, expanded)
                place = end
            elif token.text in raw and after.text == b"##":
                made += raw[token.text] or [Token(b"", ELSEWHERE)]
            elif token.text in raw:
                if token.text not in expanded:
                    pending, shown = raw[token.text][::-1], list[Token]()
                    while pending and self.count <= MAX_TOKENS:
                        self._one(pending, shown, None)
                    expanded[token.text] = shown
                self.count += len(expanded[token.text])
                made += expanded[token.text]
            else:
                made.append(token)
        return made
