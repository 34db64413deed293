"""Find the clauses that a parametrised case does not show, because they name parameters of the other cases of its test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import cache
from typing import Any

from _pytest.mark.structures import ParameterSet
from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from ..scope import clauses as documented
from .matters import ALGORITHMS, TABLE_ROW, algorithms_of, types_of
from .parts import configurations_of
from .wording import BOTH_TYPES

CONFIGURATION = "_CONFIG"  # end of the names of combinations of data types; parameters of cases leave it out
NUMBER = re.compile(r"c\d{2,3}")
TYPE = "cudnnDataType_t"
# Tables of convolutions have rows for images and for volumes.
IMAGES, VOLUMES = frozenset({"2D"}), frozenset({"3D"})
RANKS = IMAGES | VOLUMES
VOLUME = re.compile(r"\b3-?D\b|volume", re.I)
MODES = {  # Sentences on the modes of normalization begin with these words.
    "Spatial": ("CUDNN_BATCHNORM_SPATIAL", "CUDNN_BATCHNORM_SPATIAL_PERSISTENT", "CUDNN_NORM_PER_CHANNEL"),
    "Per-activation": ("CUDNN_BATCHNORM_PER_ACTIVATION", "CUDNN_NORM_PER_ACTIVATION"),
}
Kinds = dict[str, frozenset[str]]


def of_siblings(item: Any, clauses: Iterable[str]) -> set[str]:
    """Return the clauses that name a parameter of a sibling, and no parameter of this case.

    A clause and a parameter are compared where both name enumerators of one type, functions, configurations, or the
    number of a clause. A parameter may leave out the beginning of an enumerator's name.
    """
    own = by_kind(_words(tuple(item.callspec.params.values()))) if hasattr(item, "callspec") else {}
    every = by_kind(_words([mark.args[1] for mark in item.iter_markers("parametrize")])) if own else {}
    if "rank" in every:  # Parameters for images do not name their rank.
        own["rank"] = own.get("rank", IMAGES)
        every["rank"] |= IMAGES
    return {clause for clause in clauses if clause in documented() and _speaks_of_others(clause, own, every)}


def _speaks_of_others(clause: str, own: Kinds, every: Kinds) -> bool:
    said = _kinds_of(clause)
    return any(
        said[kind] & every[kind] and not said[kind] & own[kind] for kind in said.keys() & own.keys() & every.keys()
    )


def _words(value: Any) -> set[str]:
    """Return the words of a parameter, with enumerators by name."""
    if isinstance(value, Enum):
        return {value.name}
    if isinstance(value, str):
        words = set(re.findall(r"\w+", value))
        named = (_named(word.upper()) for word in words)
        types = (f"CUDNN_DATA_{word.rpartition('_')[2]}" for word in words)
        rank = VOLUMES if VOLUME.search(value) else ()
        return words.union(*named, types, rank, (f"{word}{CONFIGURATION}" for word in words))
    if isinstance(value, ParameterSet):
        value = value.values
    return set().union(*map(_words, value)) if isinstance(value, tuple | list | dict) else set()


def _named(word: str) -> set[str]:
    """Return the enumerators that end with a word, or only the algorithms whose whole name it is, if there are any."""
    found = _ends().get(word, set())
    return found & {f"{begin}{word}" for begin in ALGORITHMS.values()} or found


@cache
def _ends() -> dict[str, set[str]]:
    """Return the enumerators by what their names end with."""
    found: dict[str, set[str]] = {}
    for name in (member.name for kind in ENUMERATIONS.values() for member in kind):
        for at in (place.end() for place in re.finditer("_", name)):
            found.setdefault(name[at:], set()).add(name)
    return found


@cache
def _kinds() -> dict[str, str]:
    """Return the kind of each word that is compared."""
    kinds = {member.name: name for name, kind in ENUMERATIONS.items() for member in kind}
    texts = " ".join(clause.text for clause in documented().values())
    configurations = (word for word in re.findall(r"\w+", texts) if word.endswith(CONFIGURATION) and word not in kinds)
    return {**kinds, **dict.fromkeys(functions(), "function"), **dict.fromkeys(configurations, CONFIGURATION)}


def by_kind(words: Iterable[str]) -> Kinds:
    """Return the words that are compared, by their kind."""
    found: dict[str, set[str]] = {}
    for word in words:
        if kind := "clause" if NUMBER.fullmatch(word) else "rank" if word in RANKS else _kinds().get(word):
            found.setdefault(kind, set()).add(word)
    return {kind: frozenset(names) for kind, names in found.items()}


@cache
def _kinds_of(clause: str) -> Kinds:
    function, _, number = clause.partition("/")
    words = set(re.findall(r"\w+", documented()[clause].text))
    words |= {"CUDNN_TENSOR_OP_MATH"} if BOTH_TYPES.search(documented()[clause].text) else set()
    short = {
        name for word in words for name in _ends().get(word, ()) if "_" in word or _kinds()[name] == function
    }  # One word may belong to several types.
    algorithms = {*algorithms_of(documented()[clause]), *MODES.get(documented()[clause].text.partition(" mode")[0], ())}
    combinations = configurations_of(documented()[clause]) if algorithms_of(documented()[clause]) else {}
    rank = words & RANKS if TABLE_ROW.match(documented()[clause].text) else set()
    found = by_kind({function, number, *(words - RANKS), *short, *algorithms, *combinations, *rank})
    if types := types_of(documented()[clause]):
        found[TYPE] = frozenset(types[:1])
    return found
