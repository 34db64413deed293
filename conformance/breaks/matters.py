"""Tell the matters of a sentence, each of which needs a break, and the breaks that are silent on a sentence."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from .parts import configurations_of, known, parts_of
from .statements import accesses_of, sorts_of
from .wording import CREATION, Declared, of_row, sizes_of, worded

# These breaks of a clause do not follow from the names in its text; each is of a matter of its own.
DECLARED: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("declared.json").read_text(encoding="utf-8")
)
# The members of such a list are matters if all of them are names of the document.
NAME = r"[A-Za-z]\w*(?:\(\))?"
LIST = re.compile(
    rf"{NAME}(?:, (?:or |and )?{NAME})*,? (?:and|or) {NAME}|CUDNN_\w+(?:, CUDNN_\w+)+|(?<=any of ){NAME}(?:, {NAME})+|(?<=any of: ){NAME}(?:, {NAME})+"
)
# These lists name what a refused value differs from, or who tells a value: they are not matters.
ASIDE = re.compile(
    r"\b(other than|none of|(advised|reported|consumed) by|with every|for (the given|input)|minimum length) .*"
)
# Such a sentence is a row of a table of data types; its first type is the input's.
ROW = re.compile(r"\bcombination:|_CONFIG:|^Table \d+ row:")
TABLE_ROW = re.compile(r"(2D|3D), ")  # beginning of a row of a table of algorithms
ALGORITHMS = {  # Rows of the tables of a function leave out these beginnings of its algorithms.
    "cudnnConvolutionForward": "CUDNN_CONVOLUTION_FWD_ALGO_",
    "cudnnConvolutionBackwardData": "CUDNN_CONVOLUTION_BWD_DATA_ALGO_",
    "cudnnConvolutionBackwardFilter": "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_",
}
LIMITED = ("refused", "accepted")  # ways to break such a row: what is inside is refused, or what is outside is not
COUNTERPART = re.compile(r"what is wrong in an argument itself is refused")
# What a placeholder or a descriptor of a pack means shows in a run.
PROMISES = re.compile(r"telling whether .* will be NULL or which alignment|\btakes (?:a pointer to )?an initiali[sz]ed")
MEMBERS = re.compile(r"are the members of (\w+_t)")
SPOKEN = {  # Sentences call these enumerators so.
    "packed sequence-major layout also works": ("CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED",),
    "packed sequence-major layout is supported": ("CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED",),
    "sequence-major (time-major) or batch-major": (
        "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED", "CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED",
    ),
    "sequence-major (time-major) and batch-major": (
        "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED", "CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED",
    ),
}  # fmt: skip
OR_NULL = re.compile(r"\bNOP when .* is NULL or its mode is (CUDNN_\w+)")  # sentences on two ways to leave a step out
COUNTED = ("attributeType", "elementCount")  # parameters that an attribute's type and number of elements are
FLOATS = ("CUDNN_TYPE_FLOAT", "CUDNN_TYPE_DOUBLE")  # types of attributes that may have either
PARTS = ("Desc", "SizeInBytes", "Size")  # ends of the names of parameters that describe another one
# A refusal of such a relation is of all members of a list at once.
RELATION = re.compile(
    r"\b(differ|disagree|overlap|(mis)?match(ed)?|identical|same (pointer|memory|device buffer)|pointers may be equal|do(es)? not (all )?(have|share)|other is not|both must|(use|carry) the same)\b"
)
MADE = re.compile(
    r"\b(?:made|[Cc]reated|configured|deleted|destroyed|released) (?:by|with) (\w+)"
)  # by the functions that are named
# A whole call that is refused says nothing about these sentences: they permit one of its ways.
PERMISSION = re.compile(
    r"\b(may(?! not)|can(?!not)|works?|supported|(?<!not )(permit(s|ted)?|allow(s|ed)?)|optional|NOP|need not)\b"
)
# Only a refusal shows what such a sentence demands.
MODAL = re.compile(
    r"\b(must|has to|have to|should|requires?|may only|only|cannot|share the same|not grow)\b(?!.*\breturned\b)", re.I
)
OF_DEMANDS = ("shape", "layout", "dtype", "support", "ordering")
OF_OBJECTS = re.compile(r"\b(created|initiali[sz]ed|proper|finali[sz]ed)\b")
OF_VALUES = ("argument", "meaning", "stored", "nothing", "enumerator", "result")
ONLY = re.compile(
    r"\bonly\b.*\bsupported\b|\bsupport(s|ed) only\b|\b[Aa]ccepts .* only|\bOnly .* (supported|allowed)|\bdimensions only\b|\brank is restricted to|\bmust (have type|be) [A-Z\d][\w, ]* or [A-Z\d]"
)
PRESET = re.compile(r"\b(by default|[Dd]irectly after|After cudnnCreate\w*|presets?|preset to|after creation)\b")
OF_PRESETS = ("preset", "result", "numbered", "NULL refused")
# Only what happens to NULL shows such a permission.
NULLS = re.compile(
    r"\b(may( both| otherwise)? be NULL|can be NULL|NULL may be|A NULL|workspace == NULL|NULL workSpace)\b"
)
OF_NULLS = ("NULL refused", "filled", "accepted", "refused")
PASSED = re.compile(
    r"\b(?:reserved|unused|not needed)\b.*\bNULL\b"
)  # NULL may be passed for a descriptor and for its memory
# What a parameter of a setter means shows where it is used.
MEANS = re.compile(
    r"\b(is the (probability|data type|element type|vector|hidden)|picks|gives|is computed in|is how many|implicitly added|factors)\b"
)
ZEROS = re.compile(r"NULL.*\bzeros?\b")
PLACE = "CUDNN_FUSED_"  # beginning of names that say where a sentence holds
RELEASES = re.compile(r"(Destroys|Frees|Releases)\b|\bis freed by\b")
RELEASED = re.compile(r"\b(deleted|destroyed|released) by\b")


@cache
def _names() -> frozenset[str]:
    """Return the names of functions and enumerators of the document."""
    return frozenset({member.name for kind in ENUMERATIONS.values() for member in kind} | functions().keys())


def parameters(function: str) -> frozenset[str]:
    """Return the names of the parameters of a function of either document; nothing for a type."""
    return frozenset(p.name for p in known(function).parameters) if known(function) else frozenset()


def returned(function: str) -> frozenset[str]:
    """Return the names of the results of a function, which no caller gives."""
    return frozenset(p.name for p in known(function).parameters if p.is_returned) if known(function) else frozenset()


@cache
def matters_of(clause: Any) -> tuple[str, ...]:
    """Return the members of a sentence's lists, or an empty name for a sentence of one matter."""
    if clause.status and clause.status.endswith("STATUS_SUCCESS"):
        return ("",)
    if len(declared := DECLARED.get(clause.id, ())) > 0:
        return tuple(dict.fromkeys(map(_matter_of, declared))) if len(declared) > 1 else ("",)
    if is_counted(clause):
        held = FLOATS if FLOATS[1] in clause.text else COUNTED[:1]
        return (*held, COUNTED[1], *(one["matter"] for one in in_words(clause)))
    if algorithms_of(clause):
        several = algorithms_of(clause) if len(algorithms_of(clause)) > 1 else ()
        return (
            *LIMITED,
            *several,
            *configurations_of(clause),
            *dict.fromkeys(one["matter"] for one in in_words(clause)),
        )
    if ROW.search(clause.text):
        return ("",)
    if COUNTERPART.search(clause.text) and returned(clause.function) < parameters(clause.function):
        return ("", "accepted")
    if spoken := spoken_of(clause):
        return spoken
    names = _names() | parameters(clause.function)
    aside = functions().keys() if clause.function in functions() else ()  # Such a sentence only refers to other calls.
    gone = returned(clause.function) if clause.status else frozenset()
    lists = ([name.removesuffix("()") for name in re.findall(NAME, found[0]) if name not in ("and", "or")]
             for found in LIST.finditer(ASIDE.sub("", clause.text)))  # fmt: skip
    found = [name for members in lists if len(members) > 1 and names.issuperset(members) for name in members]
    relation = RELATION.search(clause.text) is not None
    found = [] if relation else [name for name in found if name not in gone and name not in aside]
    named = [*found, *(name for name in parts_of(clause, relation) if name not in gone)]
    nulls = PASSED.search(clause.text) is not None
    named = [name for name in named if clause.status or nulls or not _is_part(name, named)]
    found = named if found or len({*named}) > 1 else []
    if clause.kind == "lifetime":
        found += [name for name in MADE.findall(clause.text) if name in functions()]
    found += [*sorts_of(clause), *accesses_of(clause)]
    if other := OR_NULL.search(clause.text):
        found += ["taken", other[1]]
    found += [one["matter"] for one in in_words(clause) if one["matter"] not in sizes_of(clause)]
    whole = ("",) if {*found} <= {CREATION} or allows(clause) else ()
    return tuple(dict.fromkeys([*whole, *found, *sizes_of(clause)]))


def in_words(clause: Any) -> tuple[Declared, ...]:
    """Return the breaks of the matters that a sentence has in words."""
    algorithms = algorithms_of(clause)
    return tuple(of_row(clause, algorithms)) if algorithms else worded(clause)


def _matter_of(declared: Declared) -> str:
    """Return the matter of a declared break: the one that it names, or else what it breaks."""
    name: str = declared.get("matter") or declared.get("point") or (declared.get("only") or [declared["how"]])[0]
    return name


def _is_part(name: str, names: list[str]) -> bool:
    """Return whether a name is the descriptor or the size of another one, which a break of the other shows."""
    if name.endswith(PARTS[1:]):
        return any(re.fullmatch(rf"{other}(SizeInBytes|Size)", name, re.I) for other in names)
    begin = name.removesuffix(PARTS[0])
    return begin != name and any(other.startswith((begin, f"d{begin}")) for other in names if not other.endswith(PARTS))


def is_counted(clause: Any) -> bool:
    """Return whether a sentence gives the type and the number of elements of an attribute."""
    return "attribute type" in clause.text and "element count" in clause.text


def spoken_of(clause: Any) -> tuple[str, ...]:
    """Return the enumerators that a sentence permits in other words: by what it calls them, or as the members of a type."""
    if kind := MEMBERS.search(clause.text):
        return tuple(member.name for member in ENUMERATIONS[kind[1]])
    return next((names for phrase, names in SPOKEN.items() if phrase in clause.text), ())


def is_row(clause: Any) -> bool:
    """Return whether a clause is a row of a table, of data types or of algorithms."""
    return ROW.search(clause.text) is not None or bool(algorithms_of(clause))


def types_of(clause: Any) -> tuple[str, ...]:
    """Return the data types of a row of a table of them, the input's first; a row may leave out how they begin."""
    words = (
        word if word.startswith("CUDNN_DATA_") else f"CUDNN_DATA_{word}" for word in re.findall(r"\w+", clause.text)
    )
    return tuple(dict.fromkeys(word for word in words if word in _names())) if ROW.search(clause.text) else ()


@cache
def algorithms_of(clause: Any) -> tuple[str, ...]:
    """Return the algorithms of a row of a table, by which it begins; nothing for another sentence."""
    if clause.kind != "support" or not TABLE_ROW.match(clause.text) or clause.function not in ALGORITHMS:
        return ()
    begin = ALGORITHMS[clause.function]
    head = re.sub(r"\(.*?\)", "", clause.text).partition(" accept" if begin in clause.text else ":")[0]
    words = (word.removeprefix(begin).removeprefix("ALGO_") for word in re.findall(r"(?:ALGO_)?[A-Z]\w+", head))
    return tuple(f"{begin}{word}" for word in words if f"{begin}{word}" in _names())


def allows(clause: Any) -> bool:
    """Return whether a sentence allows nothing but what it lists; the others must be refused, too."""
    return not clause.status and ONLY.search(clause.text) is not None


def is_silent(clause: Any, broken: Any) -> bool:
    """Return whether a failure under a break says nothing about a clause, whatever the case does."""
    text, how = clause.text, broken.how
    if clause.kind == "aliasing" and PERMISSION.search(text) and not MODAL.search(text):
        return how != "shared memory refused"
    demands = clause.kind in OF_DEMANDS and MODAL.search(text) is not None
    if how == "refused" and (
        clause.kind == "note" or (demands and not allows(clause) and not is_row(clause) and clause.kind != "ordering")
    ):
        return True
    if how == "refused" and "Destroy" in broken.function and RELEASED.search(text):
        return True
    if how == "refused":  # A call that does nothing would release nothing.
        whole = all(name == clause.function or name.startswith(PLACE) for name in broken.only)
        return whole and (PERMISSION.search(text) or RELEASES.search(text)) is not None
    if NULLS.search(text) and not clause.status and clause.kind != "default":
        return how not in OF_NULLS
    if how == "argument" and broken.function == clause.function and "Set" in clause.function and MEANS.search(text):
        return True
    if clause.kind == "default" and PRESET.search(text):
        return how not in OF_PRESETS
    if clause.kind == "default" and ZEROS.search(text):
        return how != "filled"
    named = how == "nothing" and broken.function in text and broken.function != clause.function
    if clause.kind == "ordering" and not OF_OBJECTS.search(text):
        return False
    return demands and how in OF_VALUES and not named
