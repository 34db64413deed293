"""Tell which matters a demand is about and which ones a refusal names, so that no other refusal proves the demand."""

from __future__ import annotations

import re
from functools import cache

from ..scope import clauses as documented

# The subject of a demand comes before its verb.
VERB = re.compile(r"\b(must|should|has to|have to|needs?|equals?|is|are|may)\b")
DIMENSION = {"0": "first", "1": "second", "2": "third", "3": "fourth"}
# Each matter has words of sentences, and words of refusals that find a fault in it.
MATTERS = {
    "NULL": (r"NULL\b|\bis required", r"\bis NULL\b|is given|are NULL|NULL is|was not set"),
    "contents": (r"initiali[sz]ed|\b[Cc]reated|creation|filled in|[Ff]inali[sz]ed|nor finali[sz]e", r"not been initialised|was destroyed|finalised"),
    "strides": (r"[Pp]acked|[Ss]trides?\b|NCDHW", r"[Pp]acked|strides"),
    "type": (r"[Dd]ata ?[Tt]ypes?\b|\bfloat\b|\bdouble\b|CUDNN_DATA_", r"CUDNN_DATA_|data_type|data type|\bdouble\b"),
    "layout": (r"[Ll]ayout\b", r"layout"),
    "rank": (r"\b\d-?D\b|\d-dimensional|\b[Rr]ank\b|nbDims|\+\d dimensions", r"has \d+ dimensions|nbDims|numbers differ"),
    "bytes": (r"\bbytes?\b|[Ss]izes?InBytes|Size\b|\bsizes?\b|[Ww]orkspace", r"\bbytes\b|SizeInBytes|Size\b"),
    "alignment": (r"\baligned\b", r"\bis at 0x|\baligned\b"),
    "scale": (r"\balpha\b|\bbeta\b", r"\balpha\b|\bbeta\b"),
    "order": (r"sorted|descending", r"in the order"),
    "lengths": (r"seqLengthArray|maxSeqLength|lengths?\b", r"lengths|Length"),
    "batch": (r"batchSize", r"batch"),
    "vector": (r"vectorSize|[Vv]ector length", r"vectors of|dimension 1"),
    **{f"dimension {i}": (rf"\b[Dd]im(ension)? {i}\b|\b({name}|{name.title()}) dimension", rf"dimension {i}\b")
       for i, name in DIMENSION.items()},
}  # fmt: skip
SIZES = {f"dimension {i}" for i in range(6)}
# Such a message names each tensor with its value.
DIFFER = re.compile(r"(dimensions|data types|strides) differ: (.*)")
VALUE = re.compile(r"(\w+?)(?:Desc)? (\([^()]*\)|\w+)")
# A sentence that compares tensors names these properties. A refusal is of one dimension or stride if no other differs.
PROPERTIES = {
    **{name: {name} for name in (*SIZES, "strides", "type", "layout", "lengths", "batch", "vector")},
    **{f"stride {i}": {f"stride {i}"} for i in range(6)},
    "dimensions": {*SIZES, "rank"},
    "NULL": {"NULL"},
    "alignment": {"alignment"},
}
# A refusal for one of these says nothing about a sentence that does not name it.
NARROW = {"NULL", "contents", "bytes", "scale"}
TENSOR = r"TensorSpec\(data_type=(\w+), dims=\(([^)]*)\), strides=\(([^)]*)\)\)"
OTHER = re.compile(rf"with {TENSOR} and {TENSOR}|is {TENSOR}, {TENSOR} is due|is {TENSOR}, \w+\[0\] is {TENSOR}")
# Such a message shows two sequences of vectors.
SEQUENCES = re.compile(
    r"RNNDataSpec\(data_type=(\w+), layout=(\w+), max_length=(\d+), batch=(\d+), vector=(\d+), lengths=\(([^)]*)\)"
)
OF_SEQUENCES = ("type", "layout", "lengths", "batch", "vector", "lengths")
BATCHES = re.compile(r"has a batch of|differ in lengths")
VECTORS = re.compile(r"vectors of \d+ elements")


def is_due(clause: str, status: str, cited: str | None, message: str) -> bool:
    """Return whether a refusal is of what a clause demands: its status, and one of the matters of its sentence."""
    demand = documented()[clause]
    if cited == clause:
        return is_of_matter(demand.text, message)
    if demand.status and status != demand.status:
        return False
    wanted, found = of_sentence(demand.text), of_refusal(message)
    return bool(wanted & found) if wanted and found else not found & NARROW


def is_of_matter(text: str, message: str) -> bool:
    """Return whether a refusal that cites a demand is of its matter: where NULL alone is refused, it is of NULL."""
    of_null = {"NULL"} <= of_sentence(text) <= {"NULL", "scale"}
    return not of_null or "NULL" in of_refusal(message)


def is_of_parameter(clause: str, point: str, message: str) -> bool:
    """Return whether a refusal names a parameter, or its descriptor if the clause does not tell them apart.

    A property that tensors share may stand in place of a parameter, or behind it.
    """
    if ", " in point:
        return all(is_of_parameter(clause, part, message) for part in point.split(", "))
    if point in PROPERTIES:
        found = of_refusal(message)
        return bool(found & PROPERTIES[point]) and (point[-1:].isalpha() or len({*SIZES, "rank"} & found) < 2)
    values = dict(VALUE.findall(differ[2])) if (differ := DIFFER.search(message)) else {}
    if len(values) > 2 and (name := point.removesuffix("Desc")) in values:
        return list(values.values()).count(values[name]) == 1  # It differs from all others.
    ends = r"\b|s\b|Size" + ("" if clause and documented()[clause].status else r"|Desc\b")
    return re.search(rf"\b{point}({ends})", message, re.I) is not None


def head_of(text: str) -> str:
    """Return the words before the verb of a demand, which name what it demands something of."""
    return VERB.split(text)[0]


@cache
def of_sentence(text: str) -> frozenset[str]:
    """Return the matters of a demand; other dimensions, with which it compares one, are none."""
    dimensions = {matter for matter in _named(head_of(text), 0) if matter.startswith("dimension")}
    return frozenset(dimensions or _named(text, 0))


def of_refusal(message: str) -> frozenset[str]:
    """Return the matters in which a refusal finds a fault; of two tensors, those in which they differ."""
    message, _, _ = message.partition(";")  # The rest of a message on support tells all operands.
    if differ := DIFFER.search(message):
        return frozenset(_differing(differ[1], [value for _, value in VALUE.findall(differ[2])]))
    if len(sequences := SEQUENCES.findall(message)) == 2:
        return frozenset(what for what, one, other in zip(OF_SEQUENCES, *sequences, strict=True) if one != other)
    tensors = OTHER.search(message)
    if tensors is None:
        said = BATCHES.sub("dimension 0", VECTORS.sub("dimension 1", message))
        return frozenset(_named(message, 1) | _named(said, 1))
    kind, dims, strides, other_kind, other_dims, other_strides = (
        value for value in tensors.groups() if value is not None
    )
    found = _differing("dimensions", [dims, other_dims])
    found |= set() if found else _differing("strides", [strides, other_strides])
    return frozenset(found | ({"type"} if kind != other_kind else set()))


def _differing(what: str, values: list[str]) -> set[str]:
    """Return the properties in which values differ: the dimensions, the strides or the type."""
    if what == "data types" or len({*values}) < 2:
        return {"type"} if len({*values}) > 1 else set()
    rows = [value.strip("()").rstrip(",").split(", ") for value in values]
    name = "dimension" if what == "dimensions" else "stride"
    found = {f"{name} {i}" for i, column in enumerate(zip(*rows, strict=False)) if len({*column}) > 1}
    found |= {"rank"} if len({len(row) for row in rows}) > 1 else set()
    return found | ({"strides"} if name == "stride" else set())


def _named(text: str, which: int) -> set[str]:
    return {matter for matter, words in MATTERS.items() if re.search(words[which], text)}
