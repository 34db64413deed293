"""Tell the parts that a sentence names, each of which needs a break: values, ranks, types, modes, operands, fields."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.support.convolution import CONFIGURATIONS

from .places import type_of

# Members of one list have nothing between them but these words.
BETWEEN = re.compile(
    r"(?:\[\w*\]|\*| (?:data|pointers?)\b| \([^()]*\))*"
    r"(?:,|,? ?(?:/|\+|\b(?:and|or|nor)\b)) ?(?:\*|(?:the|of|in|any|each|only|elements?|descriptors?|LSTM|\(LSTM only\)) )*"
)
RANK = re.compile(r"\b([45])-?D\b")
# Sentences have these words for both ranks.
BOTH_RANKS = re.compile(
    r"\b4-dimensional and 5-dimensional\b|\b4 or 5 dimensions\b|\brank is restricted to 4 or 5\b|\b2 or 3 spatial dimensions\b"
)
BOTH_DIRECTIONS = re.compile(r"\bif unidirectional\b.*\bif bidirectional\b")
# A sentence says by these words which data type it is about.
PRECISIONS = {"FP16": "CUDNN_DATA_HALF", "FP32": "CUDNN_DATA_FLOAT", "FP64": "CUDNN_DATA_DOUBLE"}
TYPE = "cudnnDataType_t"
TYPED = ("cudnnTensorDescriptor_t", "cudnnFilterDescriptor_t")  # objects with a data type
CONVOLUTION = "cudnnConvolutionDescriptor_t"  # object with a type of computation
SPOKEN_MODES = {  # Sentences on normalization call these modes so.
    re.compile(r"\b[Ss]patial\b(?=.*\b[Pp]er-activation mode)|\b[Pp]er-activation mode\b(?=.*\bspatial mode)"): {
        "cudnnBatchNormMode_t": ("CUDNN_BATCHNORM_SPATIAL", "CUDNN_BATCHNORM_PER_ACTIVATION"),
    },
    re.compile(r"\b[Pp]er-channel mode\b.*\bper-activation mode\b"): {
        "cudnnNormMode_t": ("CUDNN_NORM_PER_CHANNEL", "CUDNN_NORM_PER_ACTIVATION"),
    },
}  # fmt: skip
EVERY = re.compile(r"\b(?:every|any) (?:tensor )?format\b")
OTHER_LAYOUTS = "layout refused"  # the way to break a sentence on every format
EVERY_VALUE = re.compile(r"\b(?:works|supported) with every (mode|algorithm)\b(?: and (?:every )?(mode|algorithm)\b)?")
# These enumerations name places, labels and types of attributes. A sentence is about what they hold.
PLACES = (
    "cudnnFusedOps_t", "cudnnFusedOpsConstParamLabel_t", "cudnnFusedOpsVariantParamLabel_t", "cudnnBackendAttributeName_t",
    "cudnnBackendAttributeType_t", "cudnnBackendDescriptorType_t",
)  # fmt: skip
# Such a sentence compares: it names what a value is not, or both sides of one relation.
COMPARED = re.compile(
    r"\b(other than|none of|instead of|rather than|differs? from|advised by|reported by|consumed by|for the given|minimum length|neither|not absolute|similar (?:result )?to|the same \w+ as)\b.*|\bthe (?:count|number) of [\w ]+ in [\w\[\]]+ and [\w\[\]]+|\((?:text|e\.g\.|printed|here|as|by|the section|the text)\b[^)]*\)"
)
NUMBERS = re.compile(
    r"[Nn]umeric values|[Ee]numerator values|count up by one|follow in list order|numbered|integer values|\bis \d+ and CUDNN_\w+ is \d"
)
NUMBERED = re.compile(r"(CUDNN_\w+)(?: is| =)? \d|\b\d+ \((CUDNN_\w+)\)")
# A parameter that selects one of several ways has a way for each of its values.
SELECTS = re.compile(r"^(\w+) selects\b.*[,(].*\bor\b|\b(major, minor) or patch level, chosen by (\w+)")
ALL_SETTINGS = re.compile(
    r"^(Reads back|Reports|Retrieves|Returns|Copies)\b.* (settings|parameters|current internal state)\b"
)
COMPUTED = re.compile(r"^Computes (?:the )?([\w-]+(?:, [\w-]+)* and [\w-]+) sizes")
TAKES = re.compile(
    r"takes an initiali[sz]ed cudnn(Tensor|Filter)Descriptor_t for (?:the common )?size, layout and data type"
)
ROW_FIELDS = ("shape", "layout", "dtype")  # what such a descriptor is for, as kinds of clauses call it
SCALARS = ("alpha", "alpha1", "alpha2", "beta")
# A row of a table of convolutions says of which rank and filter it is.
ROW_PLACE = re.compile(r"([23])D, (?:filter|d?wDesc) (?:CUDNN_TENSOR_)?(NCHW_VECT_C|NCHW|NHWC)(?:-type)?\b")
RANKS = {"2": "4D", "3": "5D"}
# Such a row is one combination of data types.
COMBINATION = re.compile(r"combination: x (\w+), w (\w+), convDesc compute type (\w+), y and z (\w+), bias (\w+),")
FORMULA = re.compile(r"(?<![\w=<>])=(?![=\w])|:=|\[\w+ x \w+\]")
FIELDS = {  # properties that two descriptors share, by the words of sentences
    "dimensions": "dimensions", "strides": "strides", "dataType": "type", "layout": "layout", "maxSeqLength": "lengths",
    "seqLengthArray": "lengths", "batchSize": "batch", "vectorSize": "vector", "type": "type",
}  # fmt: skip
COMPARES = re.compile(r"\b(match(es)?|identical|differs?|(dis)?agree|mismatched|inconsistent|wrong|same)\b")
COMPARED_TENSORS = re.compile(r"Desc\b|\btensors?\b|\bdescriptors\b|\bin-place\b|\b[Ii]nput and output\b")
SIZES = ("n", "c", "h", "w")  # names of the dimensions of an image
OFFERED = re.compile(r"\b(may(?: both)? be NULL|can be NULL|reserved|NULL may be|optional)\b")


def known(function: str) -> Any:
    """Return a function of either document, or None for another subject."""
    return functions().get(function) or miopen_functions().get(function)


def listed(text: str, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lists of these names in a text: two or more with nothing but commas and conjunctions between them."""
    found = [m for m in re.finditer(r"[A-Za-z]\w*", text) if m[0] in names]
    run: list[re.Match[str]] = []
    for one in found:
        if run and not BETWEEN.fullmatch(text[run[-1].end() : one.start()]):
            if len(run) > 1:
                yield [m[0] for m in run]
            run = []
        run.append(one)
    if len(run) > 1:
        yield [m[0] for m in run]


def contexts_of(clause: Any) -> tuple[str, ...]:
    """Return the values that a sentence tells apart: ranks, data types, modes and enumerators of one type."""
    text = COMPARED.sub("", clause.text)
    said = "4D 5D" if BOTH_RANKS.search(text) else text
    ranks = tuple(dict.fromkeys(f"{rank}D" for rank in RANK.findall(said)))
    precisions = tuple(PRECISIONS[word] for word in PRECISIONS if re.search(rf"\b{word}\b", text))
    found = [tuple(_of_input(clause, name) for name in group) for group in (ranks, precisions) if len(group) > 1]
    return tuple(
        dict.fromkeys(name for group in (*found, *_modes(clause, text), *_values(clause, text)) for name in group)
    )


def _of_input(clause: Any, name: str) -> str:
    """Return a rank or data type as a call of the clause's function tells it of its first tensor."""
    parameters = known(clause.function).parameters if known(clause.function) else ()
    tensors = [p.name for p in parameters if p.base_type == "cudnnTensorDescriptor_t" and p.direction == "in"]
    return f"{tensors[0]}_{name}" if tensors else name


def _modes(clause: Any, text: str) -> Iterator[tuple[str, ...]]:
    types = {p.base_type for p in known(clause.function).parameters} if known(clause.function) else set()
    for phrase, modes in SPOKEN_MODES.items():
        if phrase.search(text):
            yield from (names for kind, names in modes.items() if kind in types)
    chosen = SELECTS.search(text)
    for one in (*EVERY_VALUE.finditer(text), *([chosen] if chosen else ())) if types else ():
        said = {word if chosen else word[:4] for word in one.groups() if word}
        for p in known(clause.function).parameters:
            if p.base_type in ENUMERATIONS and {p.name, p.name[:4]} & said:
                yield tuple(member.name for member in ENUMERATIONS[p.base_type])


def _values(clause: Any, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the enumerators of each type that a sentence names more than one of; a list may leave out how names begin."""
    if NUMBERS.search(text):
        return
    if BOTH_DIRECTIONS.search(text):
        yield "CUDNN_UNIDIRECTIONAL", "CUDNN_BIDIRECTIONAL"
    kinds: dict[str, list[str]] = defaultdict(list)
    for word in dict.fromkeys(re.findall(r"\bCUDNN_\w+", text)):
        kinds[type_of(word)].append(word)
    yield from (tuple(names) for kind, names in kinds.items() if kind not in ("", TYPE, *PLACES) and len(names) > 1)
    function = known(clause.function)
    tensors = (
        [p.name for p in function.parameters if p.base_type in TYPED and re.search(rf"\b{p.name}\b", text)]
        if function
        else []
    )
    tensor = f"{tensors[0]}_" if len(tensors) == 1 and not clause.status else ""
    subjects = {p.base_type for p in function.parameters} if function else {*ENUMERATIONS}
    for kind in sorted((subjects | {TYPE}) - {*PLACES}):
        ends = {
            end: name
            for end, name in _ends(kind).items()
            if function or kind in (TYPE, clause.function) or end.count("_") > 1
        }
        for names in listed(text, tuple(ends)):
            yield tuple(f"{tensor if kind == TYPE else ''}{ends[name]}" for name in names)


@cache
def _ends(kind: str) -> dict[str, str]:
    """Return the enumerators of a type by their names and by what follows the words that all of them begin with."""
    names = list(ENUMERATIONS[kind].__members__) if kind in ENUMERATIONS else []
    words = [name.split("_") for name in names]
    shared = [column[0] for column in zip(*words, strict=False)]
    while shared and any(word[: len(shared)] != shared for word in words):
        shared.pop()
    return {"_".join(word[at:]): "_".join(word) for word in words for at in range(len(shared) + 1) if len(words) > 1}


def operands_of(clause: Any) -> tuple[str, ...]:
    """Return the parameters of which a sentence says something: members of lists, subjects, what a formula combines."""
    function = known(clause.function)
    if function is None:
        return ()
    text = EVERY_VALUE.sub("", COMPARED.sub("", clause.text))
    if "paper" in text:
        text = re.sub(r"\bbeta\b", "", text)  # The paper calls a bias so.
    parameters = {p.name: p for p in function.parameters if p.base_type not in ("cudnnHandle_t", "miopenHandle_t")}
    lists = list(listed(re.sub(r"\[\w*\]", "", text), tuple(parameters)))
    if ALL_SETTINGS.search(text):
        lists.append([name for name, p in parameters.items() if p.is_returned])
    if computed := COMPUTED.search(text):
        stems = re.split(r", | and ", computed[1].replace("-", "").lower())
        lists.append(
            [name for name in parameters if name.lower().startswith(tuple(stems)) and parameters[name].is_returned]
        )
    begins = re.findall(r"(?:^|; )\*?([A-Za-z]\w*)(?!\w|:)|(?: and|,) ([A-Za-z]\w*) the\b", text)
    lists.append([name for names in begins for name in names if name in parameters])
    if clause.kind == "semantics" and not clause.status and not OFFERED.search(text):
        words = [word for word in re.findall(r"[A-Za-z]\w*", text) if word in parameters]
        if FORMULA.search(text):
            lists.append([word for word in words if not parameters[word].base_type.endswith("Descriptor_t")])
        else:
            lists.append([word for word in words if parameters[word].memory == "device" or word in SCALARS])
    return tuple(dict.fromkeys(name for names in lists if len(set(names)) > 1 for name in names))


def fields_of(clause: Any) -> tuple[str, ...]:
    """Return the properties in which a sentence compares descriptors, if it lists several."""
    text = f"{clause.text[:1].lower()}{clause.text[1:]}".replace("data types", "dataType").replace(
        "data type", "dataType"
    )
    if known(clause.function) is None or not COMPARES.search(text) or not COMPARED_TENSORS.search(text):
        return ()
    own = {p.name for p in known(clause.function).parameters}
    lists = [[FIELDS[name] for name in names] for names in listed(text, tuple(FIELDS.keys() - own))]
    sizes = text.replace("height", "h").replace("width", "w")
    lists += [
        [f"dimension {SIZES.index(name)}" for name in names] for names in listed(sizes, SIZES) if not own & {*SIZES}
    ]
    strides = tuple(f"{name}Stride" for name in SIZES)
    lists += [
        [f"stride {strides.index(name)}" for name in names] for names in listed(text, strides) if not own & {*strides}
    ]
    return tuple(dict.fromkeys(name for names in lists if len(set(names)) > 1 for name in names))


def attributes_of(clause: Any) -> tuple[str, ...]:
    """Return the attributes that a sentence on a descriptor of the backend names by words, if it names several."""
    if not clause.function.startswith("CUDNN_BACKEND_") or "CUDNN_ATTR_" in clause.text or clause.status:
        return ()
    section = clause.function.removeprefix("CUDNN_BACKEND_").removesuffix("_DESCRIPTOR")
    begin = f"CUDNN_ATTR_{section.replace('BACKWARD', 'BWD').replace('GEN_STATS', 'GENSTATS')}_"
    found = [
        name
        for name in ENUMERATIONS["cudnnBackendAttributeName_t"].__members__
        if name.startswith(begin)
        and all(
            re.search(rf"\b{word.lower()}\b" if len(word) < 3 else rf"\b{word.lower().removesuffix('s')}", clause.text)
            for word in name.removeprefix(begin).removesuffix("_VALUE").split("_")
        )
    ]
    return tuple(found) if len(found) > 1 else ()


def parts_of(clause: Any, is_relation: bool) -> tuple[str, ...]:
    """Return all parts that a sentence names; a relation of two operands is one matter."""
    operands = operands_of(clause)
    contexts = contexts_of(clause)
    numbered = [
        name
        for found in NUMBERED.findall(clause.text)
        for name in found
        if name and type_of(name) == clause.function.partition("@")[0]
    ]
    return (
        *contexts,
        *(numbered if len(numbered) > 1 else ()),
        *((OTHER_LAYOUTS,) if contexts and EVERY.search(clause.text) else ()),
        *(() if is_relation and len(operands) < 3 else operands),
        *fields_of(clause),
        *attributes_of(clause),
        *(ROW_FIELDS if TAKES.search(clause.text) else ()),
    )


def configurations_of(clause: Any) -> dict[str, tuple[str, ...]]:
    """Return the combinations of data types in a row of a table of algorithms: name -> what a call with them says."""
    kinds = {"cudnnTensorDescriptor_t": "x", "cudnnFilterDescriptor_t": "w", "cudnnConvolutionDescriptor_t": "compute"}
    typed = {
        p.name: "y" if p.name in ("yDesc", "dyDesc") else kinds[p.base_type]
        for p in known(clause.function).parameters
        if p.base_type in kinds
    }
    said = {word.removesuffix("_CONFIG") for word in re.findall(r"\w+", clause.text)}
    return {
        row.name: tuple(f"{name}_{getattr(row, field).name}" for name, field in typed.items())
        for row in CONFIGURATIONS
        if row.name.removesuffix("_CONFIG") in said
    }


def described_in(clause: Any) -> tuple[str, ...]:
    """Return what a call says whose descriptors have the data types that a row of a table gives them."""
    parameters = known(clause.function).parameters
    described = {p.name for p in parameters if p.base_type in (*TYPED, CONVOLUTION) and not p.nullable}
    described |= {name[0].upper() for name in described if name[1:] == "Desc" and len(name) == 5}
    found, waiting = [], []
    for word in re.findall(r"\w+", clause.text):
        name = word if word.startswith("CUDNN_DATA_") else f"CUDNN_DATA_{word}"
        if word in described:
            waiting.append(word if word.endswith("Desc") else f"{word.lower()}Desc")
        elif name in ENUMERATIONS[TYPE].__members__:
            found += [f"{descriptor}_{name}" for descriptor in waiting]
            waiting = []
    return tuple(found)


def place_of_row(clause: Any) -> tuple[str, ...]:
    """Return the format of the filter and the rank of the first tensor in the calls that a row of a table is about."""
    found = ROW_PLACE.match(clause.text)
    return (f"CUDNN_TENSOR_{found[2]}", _of_input(clause, RANKS[found[1]])) if found else ()


def combination_of(clause: Any) -> tuple[str, ...]:
    """Return what a call says whose operands have the data types in a row that is one combination of them."""
    found = COMBINATION.search(clause.text)
    if found is None:
        return ()
    x, w, convolution, y, bias = found.groups()
    types = {"xDesc": x, "wDesc": w, "convDesc": convolution, "yDesc": y, "zDesc": y, "biasDesc": bias}
    return tuple(f"{name}_{kind}" for name, kind in types.items())
