"""Tell the statements of a sentence apart, each of which needs a break: what it says, permits and demands."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from dualdnn.api.document import functions

# These are the sorts of statements.
DEMAND = "demand"
PERMISSION = "permission"
DESCRIPTION = "description"
SORTS = (DEMAND, PERMISSION, DESCRIPTION)
OF_DEMANDS = ("accepted", "status")
OF_PERMISSIONS = (
    "refused",
    "NULL refused",
    "layout refused",
    "shared memory refused",
    "held contents refused",
    "unequal refused",
)
# Statements begin here.
BOUNDARY = re.compile(
    r"; (?:otherwise |then )?|, (?=never\b)|,? but (?=only|not\b|then|never)|\. (?=[A-Z])|,? and (?=(?:must|may|should|can|has to|have to)\b)"
)
ASIDE = re.compile(r" ?\((?!\))[^()]*\)")  # what stands in parentheses is a remark
REMARK = re.compile(
    r"\b(?:see doubts|placeholder|no formula|printed|the text|by convention|e\.g\.|cannot exist|historical|was unused before|takes no arguments|names imply|absent|Contradicts|blank|for backward compatibility|equivalent notation|in this version|the type itself|a (?:GPU|device) buffer|user-allocated|the caller has to|in the latter case|not returned|strides are (?:unsupported|not supported)|same descriptor kind)\b"
)
DEMANDS = re.compile(
    r"\b(?:must|has to|have to|should(?! be (?:passed|the one))|cannot|may not|requires?|only (?:both|together)|not (?:both|allowed|supported|implemented)|no other \w+(?: \w+){0,3} is (?:supported|enabled)|the only supported|unsupported|no strides|restricted to|(?<!runs )at most|less than or equal|never larger|not larger|not grow|support neither|forbidden|rejected|not be NULL|is to be|are not\.)(?!\w)"
)
PERMITS = re.compile(
    r"\b(?:may(?! not)(?: \w+)? (?:be(?! faster| changed| shorter)|have|differ|use|lie|come)|can be|NULL is allowed|optional(?! value)(?:ly)?|permitted|any or all|not needed(?! for)|unused(?! dim)|reserved|accepts every|dimensions are supported)\b"
)
WORDS = re.compile(r"[A-Za-z]{2,}.* [A-Za-z]{2,}")  # a statement has two words at least
UNSPLIT = ("usecase_", "miopen", "CUDNN_BACKEND_")
ROW = re.compile(
    r"_CONFIG:|\bcombination:|^(?:2D|3D), |row:|attribute type|^Possible|^dataType=|^CUDNN_FUSED_\w+: CUDNN_PARAM"
)
MOVED = re.compile(r"\bis read from\b.*\bwritten to\b")
BOTH_WAYS = re.compile(r"\b(?:read and (?:written|updated)|input and output)\b")


def sort_of(how: str) -> str:
    """Return which sort of statement this break can prove."""
    return DEMAND if how in OF_DEMANDS else PERMISSION if how in OF_PERMISSIONS else DESCRIPTION


@cache
def statements_of(clause: Any) -> tuple[tuple[str, str], ...]:
    """Return the statements of a sentence as (sort, text); empty for rows of tables and if all statements have one sort."""
    if (
        clause.status
        or clause.kind in ("lifetime", "ordering")
        or clause.function.startswith(UNSPLIT)
        or ROW.search(clause.text)
    ):
        return ()
    parts = (ASIDE.sub("", part) for part in BOUNDARY.split(clause.text))
    said = [part for part in parts if WORDS.search(part) and not REMARK.search(part)]
    found = tuple((sort_of_text(part), part) for part in said)
    return found if len({sort for sort, _ in found}) > 1 else ()


def sort_of_text(text: str) -> str:
    """Return the sort of a statement. A statement that permits NULL is a permission, whatever else it names."""
    if re.search(r"\bNULL\b", text) and PERMITS.search(text):
        return PERMISSION
    return DEMAND if DEMANDS.search(text) else PERMISSION if PERMITS.search(text) else DESCRIPTION


def sorts_of(clause: Any) -> tuple[str, ...]:
    """Return the sorts of the statements of a sentence, if it has several."""
    return tuple(dict.fromkeys(sort for sort, _ in statements_of(clause)))


def stated(clause: Any, broken: Any) -> list[Any]:
    """Return the clause; if its statements have several sorts, return one clause for each statement of the break's sort."""
    if not statements_of(clause):
        return [clause]
    return [replace(clause, text=text) for sort, text in statements_of(clause) if sort == sort_of(broken.how)]


@cache
def accesses_of(clause: Any) -> tuple[str, ...]:
    """Return a break of reading and one of writing for each operand that a sentence calls read and written."""
    known = functions().get(clause.function)
    if known is None or clause.status:
        return ()
    if MOVED.search(clause.text):
        ends = [p for p in known.parameters if re.search(rf"\b{p.name}\b", clause.text) and p.memory == "device"]
        return tuple(f"{'unread' if p.direction == 'in' else 'unwritten'} {p.name}" for p in ends)
    if not BOTH_WAYS.search(clause.text):
        return ()
    said = next(part for part in re.split("; ", clause.text) if BOTH_WAYS.search(part))
    words = re.findall(r"\w+", BOTH_WAYS.split(said)[0].replace("reserve space", "reserveSpace"))
    named = [
        p.name
        for p in known.parameters
        if p.name in words and p.memory == "device" and p.direction == "inout" and "work" not in p.name.lower()
    ]
    return tuple(f"{how} {name}" for name in named for how in ("unread", "unwritten"))
