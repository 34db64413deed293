"""Test that comments and docstrings begin like sentences. CONTRIBUTING.md has the rules."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("api", "reference", "accelerated", "conformance", "tests")
# A comment that begins with one of these words lacks a subject.
NO_SUBJECT = re.compile(r"(of|that|those|from|with|whose|which)\b(?! *(is|are)\b)", re.IGNORECASE)
# A docstring of a layer that begins with one of these words, or with something else than a capital, has no verb first.
NO_VERB = re.compile(
    r"(?:An?|The|This|These|It|Its|One|Some|Any|All|Each|Every|No|Not|Only|For|In|On|At|By|To|As|If|When|Where|While|How|Why"
    r"|Whether|And|Or|But|\w+(?:ing|tion|ness|als)s?)\b|[^A-Z]"
)
VERBLESS = re.compile(r'"""(?:' + NO_VERB.pattern + ")")
# Only files where such a word follows a quote or a comment mark are parsed, to save time.
SUSPECT = re.compile(r"""(?:["'][ \t\\]*|\"""\s*\n[ \t]+|#[#: ]*|//\s*)""" + NO_SUBJECT.pattern, re.IGNORECASE)

# Limits begin with MAX_ or MIN_; LOWEST alone is a value, as in numeric_limits.
SUPERLATIVE = re.compile(
    r"\b(?:(?:MOST|LEAST|FEWEST|LONGEST|SHORTEST|LARGEST|SMALLEST|GREATEST|HIGHEST|DEEPEST|FARTHEST|FURTHEST|MAXIMUM|MINIMUM)"
    r"(?:_[A-Z0-9_]+)?|LOWEST_[A-Z0-9_]+)(?= *(?::|=(?!=)|, [A-Z]))"
)

MAX_WORDS = (
    25  # per sentence; code is one word, an aside in parentheses none, and items of a list after a colon count alone
)
PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) |\n(?=\S+ {2,})")
NO_PROSE = re.compile(r"^```.*?^```|^\$\$.*?^\$\$|^(?:#|\|| {4}).*?$", re.S | re.M)


def sources(layer: str, *suffixes: str) -> list[Path]:
    found = (path for path in sorted((ROOT / layer).rglob("*")) if path.suffix in suffixes)
    return [path for path in found if "__pycache__" not in path.parts]


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each comment; consecutive lines form one comment."""
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        found = [
            (t.start[0], t.string.lstrip("#: "), not t.line[: t.start[1]].strip())
            for t in tokens
            if t.type == tokenize.COMMENT
        ]
    else:
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        matches = (
            (number, re.match(r"""((?:[^"'/]|"[^"]*"|'[^']*'|/(?!/))*)//\s*(.*)""", line)) for number, line in lines
        )
        found = [(number, match[2], not match[1].strip()) for number, match in matches if match]
    last = -1
    for line, text, is_alone in found:
        if not (is_alone and line == last + 1):
            yield line, text
        last = line if is_alone else -1


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize("layer", (*LAYERS[:-1], "package"))
def test_docstrings_begin_with_a_verb(layer):
    """Cases are left out: the docstring of a test states a property."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0][:80]}"
        for path in sources(layer, ".py")
        if "cases" not in path.parts and VERBLESS.search(path.read_text(encoding="utf-8"))
        for line, text in docstrings(path)
        if NO_VERB.match(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("layer", LAYERS)
def test_no_comment_or_docstring_begins_without_a_subject(layer):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0][:80]}"
        for path in sources(layer, ".py", ".cu", ".cuh", ".h", ".c", ".cpp")
        if SUSPECT.search(path.read_text(encoding="utf-8"))
        for line, text in [*comments(path), *(docstrings(path) if path.suffix == ".py" else ())]
        if NO_SUBJECT.match(text)
    ]
    assert not found, "\n".join(found)


def long_sentences(text: str) -> list[str]:
    """Return the parts of sentences that exceed MAX_WORDS."""
    found = []
    for paragraph in PARAGRAPH.split(NO_PROSE.sub("\n\n", text)):
        plain, aside = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", paragraph)), re.compile(r"\([^()]*\)")
        while aside.search(plain):
            plain = aside.sub("", plain)
        for sentence in re.split(r"(?<=[.!?])[\"')*]*\s|;\s", plain):
            head, _, items = sentence.partition(": ")
            parts = (head, *re.split(r", | and ", items))
            found += [" ".join(part.split()) for part in parts if len(re.findall(r"[^\W_]\S*", part)) > MAX_WORDS]
    return found


@pytest.mark.parametrize("folder", [".", "docs", "reports", "examples", *LAYERS[:-1]])
def test_no_sentence_is_long(folder):
    pages = (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
    texts = {p: [p.read_text(encoding="utf-8")] for p in pages if p.parent.name != "made"}
    if folder in LAYERS:
        texts = {p: [text for _, text in docstrings(p)] for p in sources(folder, ".py")}
    found = [
        f"{path.relative_to(ROOT)}: {s}" for path, some in texts.items() for text in some for s in long_sentences(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_name_of_a_limit_begins_with_max_or_min(layer):
    """One prefix for each bound lets a reader search for all limits."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(layer, ".py", ".cu", ".cuh", ".h", ".cpp")
        for name in SUPERLATIVE.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_glossary_has_few_words_of_ours():
    """A reader learns fifteen words at most; others are the field's."""
    rows = re.findall(r"^\| [a-z ]+ \| .* \|$", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.M)
    assert len([row for row in rows if not row.startswith("| word |")]) <= 15
