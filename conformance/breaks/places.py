"""Tell the networks, layouts and modes that a sentence is about, so that no case of another one proves it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

FIELD = "="  # separates a field of a descriptor from its value
OR = "|"  # separates enumerators of which a call names at least one
UNPACKED = "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED|CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED"
AVERAGE = "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING|CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING"
SPOKEN = {  # type -> words of sentences -> the enumerators that they mean
    "cudnnDirectionMode_t": {
        r"\b[Uu]nidirectional\b|\bCUDNN_UNIDIRECTIONAL\b": "CUDNN_UNIDIRECTIONAL",
        r"\b[Bb]idirectional\b|\bCUDNN_BIDIRECTIONAL\b|\bforward and reverse cells\b|\bodd ones\b|\bpseudo-layers of a pair\b": "CUDNN_BIDIRECTIONAL",
    },
    "cudnnRNNMode_t": {
        r"^(?!.*\bclipping\b).*\bLSTM\b": "CUDNN_LSTM", r"\bGRU\b": "CUDNN_GRU", r"\bRELU\b": "CUDNN_RNN_RELU", r"\bTANH\b": "CUDNN_RNN_TANH",
    },
    "cudnnRNNDataLayout_t": {
        r"\b[Uu]npacked layout\b|\b[Pp]added sequence\b|\(padded\)|padding vectors": UNPACKED,
        r"\bpacked sequence-major layout\b": "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED",
    },
    "cudnnPoolingMode_t": {r"^Average pooling\b": AVERAGE},
}  # fmt: skip
EITHER = re.compile(r"\bRELU or TANH\b")  # a sentence on the networks that it names, and on no other
# A sentence with these words is about the modes that it does not name.
OTHERS = re.compile(r"\bother (?:modes|cells|than)\b|\b[Ww]ithout LSTM\b|projection is not enabled")
# Sentences on operations of graphs speak of those with one or two inputs.
INPUTS = {
    r"\b[Tt]wo-input operations\b": r"CUDNN_POINTWISE_(?:ADD|MUL|MIN|MAX)",
    r"\b[Oo]ne-input operations\b": r"CUDNN_POINTWISE_(?:SQRT|\w+_FWD)",
}
OPERATION = re.compile(r"CUDNN_BACKEND_(?:OPERATION_)?(CONVOLUTION\w*|POINTWISE|GEN_STATS)_DESCRIPTOR")
DESCRIPTOR = re.compile(r"\w+Descriptor_t")


@cache
def carriers(kind: str) -> frozenset[str]:
    """Return the functions whose arguments name an enumerator of a type, by themselves or in a descriptor."""
    known = functions().values()
    holders = {
        f.arguments[0].base_type
        for f in known
        if f.name.startswith("cudnnSet") and any(p.base_type == kind for p in f.arguments) and DESCRIPTOR.match(f.arguments[0].base_type)
    }  # fmt: skip
    return frozenset(f.name for f in known if any(p.base_type in {kind, *holders} for p in f.arguments))


def place_of(clause: Any, function: str) -> tuple[str, ...]:
    """Return what a call of a function names where a sentence holds; nothing where it compares several modes."""
    found: list[str] = []
    if OTHERS.search(clause.text):
        return ()
    for kind, words in SPOKEN.items():
        said = [names for phrase, names in words.items() if re.search(phrase, clause.text)]
        if (len(said) == 1 or EITHER.search(clause.text)) and function in carriers(kind) and said:
            found.append(OR.join(said))
    return tuple(found)


def type_of(name: str) -> str:
    """Return the enumeration of the first of enumerators that OR separates, or an empty text."""
    first = name.partition(OR)[0]
    return next((kind for kind, members in ENUMERATIONS.items() if first in members.__members__), "")


def placed(clause: Any, broken: Any) -> tuple[str, ...]:
    """Return the enumerators that calls must name to be broken: those of the break, and those of the sentence's place."""
    known = {broken.type, *map(type_of, broken.only)}
    return (*broken.only, *(name for name in place_of(clause, broken.function) if type_of(name) not in known))


def node_of(clause: Any) -> tuple[str, ...]:
    """Return what the text of a graph contains if it has a node that a sentence is about; nothing for other descriptors."""
    found = OPERATION.fullmatch(clause.function)
    if found is None:
        return ()
    name = found[1].title().replace("_", "")
    inputs = (modes for words, modes in INPUTS.items() if re.search(words, clause.text))
    return (rf"{name}\w*Node", *inputs)
