"""Derive the breaks of a clause from its kind and the names in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from .demands import head_of
from .fits import ARITHMETIC, CHOSEN, GROUPED, GROUPS, LEFT_OUT, POINTED, TAKES, VARYING, WITH_MODE, fits
from .matters import (
    COUNTED,
    COUNTERPART,
    DECLARED,
    FLOATS,
    PRESET,
    PROMISES,
    algorithms_of,
    allows,
    in_words,
    is_counted,
    is_silent,
    matters_of,
    parameters,
    returned,
    spoken_of,
    types_of,
)
from .parts import (
    NUMBERS,
    ROW_FIELDS,
    attributes_of,
    combination_of,
    configurations_of,
    contexts_of,
    described_in,
    fields_of,
    known,
    operands_of,
    place_of_row,
)
from .places import node_of, placed, type_of
from .statements import DEMAND, SORTS, accesses_of, sort_of, sorts_of, stated

# These sentences forbid or demand something, which a refusal shows.
DEMANDS = re.compile(
    r"\b(Only|Must)\b|\b(must|has to|have to|should|cannot|only|requires?|share the same|not grow|not (be|allowed|supported|to)|required|read-only|unsupported|restricted|at most|at least|equals?|(is|are) fully packed|fully packed .*descriptors?|identical|an error|not applied|not larger|already initiali[sz]ed|checked against|is checked|has exactly|is the descriptor (used|given)|each fully packed|Strides of each)\b"
)
PERMITS = re.compile(
    r"\b(may( both| otherwise)? be NULL|can be NULL|NULL means|is NULL|NULL may be|With NULL|optional)\b|= ?NULL|\bA NULL\b"
)
REFUSALS = ("accepted", "status")  # breaks of clauses that demand a refusal
ALLOWS = re.compile(r"\b(support(s|ed)?|accept(s|ed)?|may|can|works?|allow(s|ed)?|permit(s|ted)?)\b|_CONFIG", re.I)
UNHELD = re.compile(r"need(s no| not be)|may change|not read|carr(y|ies) (no|nothing)|overwritten|no information")
# Each enumeration of attribute names has a setter, a getter and the parameter that takes the name.
ATTRIBUTES = {
    "cudnnBackendAttributeName_t": ("cudnnBackendSetAttribute", "cudnnBackendGetAttribute", "attributeName"),
    "cudnnFusedOpsConstParamLabel_t": (
        "cudnnSetFusedOpsConstParamPackAttribute", "cudnnGetFusedOpsConstParamPackAttribute", "paramLabel",
    ),
    "cudnnFusedOpsVariantParamLabel_t": (
        "cudnnSetFusedOpsVariantParamPackAttribute", "cudnnGetFusedOpsVariantParamPackAttribute", "paramLabel",
    ),
}  # fmt: skip
MADE = re.compile(r"create an? ([\w ]+) descriptor")
# The use cases of chapter 9 have these prefixes.
USE_CASES = ("operation_graph_", "engine_configuration", "execution_plan", "descriptor_life_cycle")
# Enumerators with these prefixes say where a sentence holds.
PLACES = ("CUDNN_FUSED_",)
# A sentence in these words says how whole numbers are rounded.
ROUNDED = {
    "ties away from even": re.compile(r"\bties to even\b"),
    "wrapped around": re.compile(r"\bsaturates\b|\bclamped\b.* of the type"),
    "truncated": re.compile(r"\bcomputes in float even\b"),
}
# These breaks change memory when the case reads it back. One element is wrong, memory after an operand is written, a
# NaN or an infinity is lost or new, or elements are one place further on. Or doubles are floats, or an input is added.
ELEMENT = "element"
OVERRUN = "overrun"
SPECIAL = "special"
MISPLACED = "misplaced"
NARROWED = "narrowed"
OVERFLOWN = "overflown"
ADDED = "added"
INDEX = "next index"  # break of an output that holds positions
OF_MEMORY = (ELEMENT, OVERRUN, SPECIAL, MISPLACED, NARROWED, OVERFLOWN, ADDED, INDEX, *ROUNDED)
SPACES_OF = {  # Each query has the first and the last call that share the reserve space of this size.
    "cudnnGetBatchNormalizationTrainingExReserveSpaceSize": (
        "cudnnBatchNormalizationForwardTrainingEx",
        "cudnnBatchNormalizationBackwardEx",
    ),
    "cudnnGetNormalizationTrainingReserveSpaceSize": (
        "cudnnNormalizationForwardTraining",
        "cudnnNormalizationBackward",
    ),
    "cudnnDropoutGetReserveSpaceSize": ("cudnnDropoutForward", "cudnnDropoutBackward"),
    "cudnnGetRNNTrainingReserveSize": ("cudnnRNNForwardTraining", "cudnnRNNBackwardWeights"),
    "cudnnGetRNNTempSpaceSizes": ("cudnnRNNForward", "cudnnRNNBackwardWeights_v8"),
    "cudnnGetMultiHeadAttnBuffers": ("cudnnMultiHeadAttnForward", "cudnnMultiHeadAttnBackwardWeights"),
}
# Only attributes take these enumerations.
GRAPH_TYPES = ("cudnnBackendHeurMode_t", "cudnnGenStatsMode_t", "cudnnPointwiseMode_t")
ANYWHERE = ("meaning", "preset", "status", "numbered")  # A call's arguments do not say where these breaks apply.
OF_SUPPORT = ("support", "layout", "dtype")  # kinds of clauses that say which values a call accepts
NUMBERED = "numbered"  # the break of an enumeration's numbers
# These descriptors hold settings. A sentence compares them with the values that it demands of others.
SETTINGS = ("handle", "rnnDesc", "attnDesc", "ctcLossDesc", "convDesc", "poolingDesc", "mode")
DIRECTION = re.compile(r"\b(?:CUDNN_)?(UNIDIRECTIONAL|BIDIRECTIONAL)\b", re.I)  # networks that a sentence is about
DIMENSIONS = re.compile(r"\b[Dd]im(ension)? \d|\bdimension\b")
WHOLE = re.compile(r"(Computes|Runs|Performs|Applies)\b")  # sentences on all that a call computes
PLACING = re.compile(r"axes|[Ss]tride|format|layout|dimA|^[nchw]$")  # parameters that say where elements are
EVERY_LAYOUT = re.compile(r"([Ee]very|[Aa]ny|All) (tensor )?(formats?|layouts?)|strides are free|strides may differ")
READS = re.compile(r"\b[Ii]nput|\bsequence\b|\bdata uses\b")  # sentences on where inputs are
SHRINKS = re.compile(r"\[n\+1\] may be smaller|\bmay shrink\b")  # sentences on lists whose members may differ
SIMILAR = re.compile(r"\bsimilar\b|\bsame output\b")  # sentences that compare an enumerator's results with others
SORTED = re.compile(r"\b(sorted|ordered)\b")
RECEIVES = re.compile(r"\b([Rr]eceives?|buffers for|[Ww]rites?|results?|yields|outputs?)\b")
BYTES = re.compile(r"\b(bytes?|size|SizeInBytes)\b|SizeInBytes")
SAID = {
    "severity": "sev",
    "sev": "sev",
    "udata": "udata",
    "dbg": "dbg",
    "cudnnDebug_t": "dbg",
    "msg": "msg",
}  # A word stands for an argument of a callback.
CHECKED = {  # subjects with demands that another call checks
    "cudnnFusedOpsConstParamLabel_t": ("cudnnMakeFusedOpsPlan", "cudnnFusedOpsExecute"),
    "cudnnFusedOpsVariantParamLabel_t": ("cudnnFusedOpsExecute",),
}


@dataclass(frozen=True)
class Break:
    """Describe one way in which calls are wrong.

    how: a key of ``HOWS``, or "element" for a fault of memory. function: the broken function; empty for all. point: a
    parameter, a field of a result or an enumerator; empty for all. type: the enumeration of the enumerator. only:
    enumerators that the arguments must contain. kind: the kind of the clause. clause: the demand whose refusals are
    not made; empty for all refusals.

    step: how an enumerator is replaced: 1 by the next, -1 by the previous, 0 by the first that the call accepts.
    matter: the only matter that the break shows; empty if what it breaks tells.
    """

    how: str
    function: str = ""
    point: str = ""
    type: str = ""
    only: tuple[str, ...] = ()
    kind: str = ""
    clause: str = ""
    step: int = 0
    matter: str = ""

    def __str__(self) -> str:
        where = ".".join(filter(None, (self.function, self.point or self.type)))
        return f"{self.how} {where or '*'}" + (f" where {', '.join(self.only)}" if self.only else "")

    def shows(self, matter: str) -> bool:
        """Return whether the break is of one matter of its sentence; an empty name stands for all of it."""
        if self.matter:
            return matter == self.matter
        sort, access = sort_of(self.how), f"{self.how} {self.point}"
        field = self.kind if self.how == "field" else ""
        return matter in ("", self.how, self.point, self.function, *self.only, sort, access, field)


@cache
def _types() -> dict[str, str]:
    """Return the enumeration of each enumerator of the document."""
    return {member.name: name for name, kind in ENUMERATIONS.items() for member in kind}


@cache
def breaks_of(clause: Any) -> tuple[Break, ...]:
    """Return the breaks of a clause, declared ones or else those that follow from its text, the most specific first."""
    if clause.id in DECLARED:
        return tuple(Break(**{**one, "only": tuple(one.get("only", ()))}) for one in DECLARED[clause.id])
    return tuple(Break(**one) for one in in_words(clause)) + tuple(
        replace(broken, clause=clause.id) if broken.how == "accepted" else _of_preset(clause, broken)
        for broken in _in_place(clause)
        if (not _refuses(clause) or broken.how in REFUSALS)
        and any(not is_silent(said, broken) and fits(said, broken) for said in stated(clause, broken))
    )


def _in_place(clause: Any) -> Iterator[Break]:
    """Yield breaks of what a sentence says, each once; calls of other networks, layouts and modes stay as they are."""
    found = tuple(dict.fromkeys((*_breaks(clause), *_of_members(clause))))
    for broken in dict.fromkeys((*found, *_of_parts(clause, found))):
        yield replace(broken, only=placed(clause, broken)) if not clause.status else broken


def _of_preset(clause: Any, broken: Break) -> Break:
    """Return the break of a preset: a getter reports another value as long as nobody set one."""
    preset = broken.how == "result" and clause.kind == "default" and PRESET.search(clause.text)
    return replace(broken, kind="default") if preset else broken


def _of_parts(clause: Any, found: tuple[Break, ...]) -> Iterator[Break]:
    """Yield breaks of the parts that a sentence names: every break in each rank, type and mode alone, and of each field."""
    function = clause.function if parameters(clause.function) else ""
    words = set(re.findall(r"\w+", clause.text))
    contexts = () if algorithms_of(clause) else contexts_of(clause)
    values, places = set(contexts), _places(clause)
    for name in contexts:
        if clause.kind in OF_SUPPORT:
            yield Break("refused", function, only=(*places, name))
        if PERMITS.search(clause.text):
            yield Break("accepted", function, only=(*places, name))
        if name not in words and type_of(name):
            yield from (Break("enumerator", function, name, type_of(name), step=step) for step in (0, -1, 1))
        yield from (
            replace(one, only=(*one.only, name))
            for one in found if one.how not in ANYWHERE and not values & {one.point, *one.only}
        )  # fmt: skip
    yield from (Break("accepted", function, name) for name in fields_of(clause))
    yield from (
        Break("result", function, name) for name in operands_of(clause)
        if name in returned(function) and name not in words
    )  # fmt: skip
    setter, getter, _ = ATTRIBUTES["cudnnBackendAttributeName_t"]
    for name in attributes_of(clause):
        yield Break("argument", setter, "arrayOfElements", only=(clause.function, name))
        yield Break("nothing", setter, only=(clause.function, name))
        yield Break("result", getter, only=(clause.function, name))


def _of_members(clause: Any) -> Iterator[Break]:
    """Yield breaks of the members that the list of a demand has: what is due for one of them is not refused."""
    backend = clause.function.startswith("CUDNN_BACKEND_")
    function = "cudnnBackendFinalize" if backend else clause.function if parameters(clause.function) else ""
    own = [one["matter"] for one in in_words(clause)] if backend else []  # These have breaks of their own.
    members = (name for name in matters_of(clause) if name not in ("", *SORTS, *accesses_of(clause), *own))
    for name in members if forbids(clause) else ():
        if name in _types():
            yield Break("refused" if allows(clause) else "accepted", function, only=(*_places(clause), name))
        if function and (name in _types() or name not in contexts_of(clause)):
            yield Break("accepted", function, name)


def _places(clause: Any) -> tuple[str, ...]:
    """Return the sequence of fused operations that a sentence is about."""
    return tuple(word for word in re.findall(r"\w+", clause.text) if word.startswith(PLACES))[:1]


def forbids(clause: Any) -> bool:
    """Return whether a clause says what a call refuses."""
    return _refuses(clause) or DEMANDS.search(clause.text) is not None


def _refuses(clause: Any) -> bool:
    """Return whether a clause is about a refusal.

    In the second document, sentences on computing calls name a status too.
    """
    succeeds = not clause.status or clause.status.endswith("STATUS_SUCCESS")
    return not succeeds and clause.kind != "semantics" and not clause.function.endswith("Perf_t")


def _breaks(clause: Any) -> Iterator[Break]:
    text = re.sub(r"\b(reserve)[- ](?:space|buffer)", r"\1Space", clause.text)
    text = re.sub(r"\bbeta\b", "", text) if re.search(r"\bpaper\b", text) else text  # "beta" of the paper is a bias.
    words = tuple(dict.fromkeys(re.findall(r"\w+", text)))
    function = known(clause.function)
    if clause.status and clause.status.endswith("STATUS_SUCCESS"):
        if function:
            yield Break("refused", clause.function)
        yield from (Break("refused", word, only=(clause.function,)) for word in words if word in functions())
        return
    if NUMBERS.search(clause.text) and (kind := clause.function.partition("@")[0]) in ENUMERATIONS:
        yield Break(NUMBERED, type=kind)
        yield from (Break(NUMBERED, point=word, type=kind) for word in words if _types().get(word) == kind)
    if TAKES.search(clause.text) or PROMISES.search(clause.text):
        setter, label = ATTRIBUTES[clause.function][0], next(w for w in words if _types().get(w) == clause.function)
        only = (*(word for word in words if word.startswith(PLACES)), label)
        value = functions()[setter].arguments[-1].name
        if TAKES.search(clause.text):
            yield Break("argument", setter, value, only=only, kind="shape")
            yield from (Break("field", setter, value, only=only, kind=kind) for kind in ROW_FIELDS)
        else:
            yield Break("enumerator", setter, "", "cudnnFusedOpsPointerPlaceHolder_t", only, step=-1)
    elif clause.function in ATTRIBUTES or clause.function.startswith(("CUDNN_BACKEND_", *USE_CASES)):
        yield from _of_attributes(clause, words)
    elif clause.function in ENUMERATIONS:
        yield from _of_enumerators(clause, words)
    if row := algorithms_of(clause):
        place = place_of_row(clause)
        yield from (Break("refused", clause.function, only=(name, *place)) for name in row)
        yield from (
            Break("accepted", clause.function, only=(name, *place[1:])) for name in row
        )  # also in other formats
        yield from (
            Break("refused", clause.function, kind, only=(name, *types, *place))
            for kind, types in configurations_of(clause).items() for name in row
        )  # fmt: skip
    elif spoken := spoken_of(clause):
        yield from (Break("refused", clause.function, only=(name,)) for name in spoken)
    elif function and (kinds := types_of(clause)):
        yield Break("refused", clause.function, only=combination_of(clause) or described_in(clause) or kinds)
    elif function:
        yield from _of_function(clause, function, words)
    if clause.function.endswith("_t"):
        yield from _of_type(clause, words)
        yield from (
            Break("result", name, word)
            for name in _returning(clause.function)
            for word in words
            if not word.startswith(("CUDNN", "cudnn")) and len(word) > 3
        )
    if clause.function == "cudnnSeverity_t":
        yield from _of_callback(words)
    if clause.function == "miopenGuide" and clause.status:
        yield Break("accepted")
    if COUNTERPART.search(clause.text):
        yield Break("accepted", clause.function)
    if not function and not clause.function.startswith("CUDNN_BACKEND_"):
        yield from _of_named_functions(clause, words)


def _of_attributes(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of the calls that set and read the attributes in the text."""
    types = _types()
    places = (clause.function,) if clause.function.startswith("CUDNN_BACKEND_") else _places(clause)
    unnamed = clause.function in ATTRIBUTES and not any(types.get(word) in ATTRIBUTES for word in words)
    if unnamed and DEMANDS.search(clause.text):
        yield from (Break("accepted", function, only=places) for function in CHECKED.get(clause.function, ()))
    elif unnamed and "computes" in clause.text:
        yield Break(ELEMENT, "cudnnFusedOpsExecute", only=places)
    elif unnamed:
        yield Break("nothing", ATTRIBUTES[clause.function][0], only=places)
    for word in words:
        if types.get(word) not in ATTRIBUTES:
            continue
        setter, getter, parameter = ATTRIBUTES[types[word]]
        only = (*places, word)
        if POINTED.search(clause.text):
            kind = "output" if ", output)" in clause.text else "input"
            yield Break("pointed", "cudnnFusedOpsExecute", word, only=places, kind=kind)
        if LEFT_OUT.search(clause.text) and types[word] == "cudnnFusedOpsConstParamLabel_t":
            yield Break("taken", "cudnnMakeFusedOpsPlan", word, only=places)
        if clause.kind == "default":
            yield Break("result", getter, only=only)
        elif PERMITS.search(clause.text) and setter != "cudnnBackendSetAttribute":
            value = functions()[setter].arguments[-1].name
            yield Break("NULL refused", setter, value, only=only)
        if clause.function.startswith(USE_CASES) and clause.kind == "ordering":
            yield Break("nothing", setter, only=only)
        if DEMANDS.search(clause.text):
            yield Break("accepted", setter, only=only)
            for function in CHECKED.get(clause.function, ("cudnnBackendFinalize",)):
                yield Break("accepted", function, word, only=places)
        if is_counted(clause):
            yield from (Break("refused", setter, only=(*only, name)) for name in FLOATS)
            for name in COUNTED:
                yield Break("argument", setter, name, only=only)
                yield Break("accepted", setter, name, only=only)
            yield Break("argument", getter, "attributeType", only=only)
            yield Break("result", getter, "elementCount", only=only)
            continue
        if re.search("return|read|report|retriev", clause.text):
            yield Break("result", getter, only=only)
            continue
        yield Break("argument", setter, parameter, only=only)
        yield Break("argument", getter, parameter, only=only)
        yield Break("result", getter, only=only)
    for word in words:
        if word in types and types[word] not in ATTRIBUTES and word not in places:
            if not LEFT_OUT.search(clause.text):  # Other attributes hold this enumerator, too.
                yield Break("enumerator", "", word, types[word], only=places if clause.function in ATTRIBUTES else ())
            if clause.function not in ATTRIBUTES:
                attributes = _attributes_of(clause, words)
                yield Break("enumerator", "cudnnBackendSetAttribute", word, types[word], only=attributes)
                yield Break("enumerator", "cudnnBackendCreateDescriptor", word, types[word])
            yield from (
                Break("enumerator", ATTRIBUTES[clause.function][0], word, types[word], only=(*places, label))
                for label in words if types.get(label) == clause.function
            )  # fmt: skip
    if clause.function.startswith("CUDNN_BACKEND_"):
        yield Break("accepted", "cudnnBackendFinalize", only=places)
        if DEMANDS.search(clause.text):
            yield Break("accepted", "cudnnBackendSetAttribute", only=places)
        yield Break("result", "cudnnBackendGetAttribute", only=places)
        if ALLOWS.search(clause.text):
            yield Break("refused", "cudnnBackendFinalize", only=places)
        if clause.kind in ("semantics", "shape", "layout"):
            yield Break(ELEMENT, "cudnnBackendExecute", only=node_of(clause))
        if clause.kind in ("shape", "layout"):
            label = f"CUDNN_ATTR_TENSOR_{'DIMENSIONS' if clause.kind == 'shape' else 'STRIDES'}"
            yield Break("argument", "cudnnBackendSetAttribute", "arrayOfElements", only=(label,), kind="shape")
        if "reate" in clause.text:
            yield Break("enumerator", "cudnnBackendCreateDescriptor", clause.function, "cudnnBackendDescriptorType_t")
    elif clause.function.startswith(USE_CASES) and (made := MADE.search(clause.text)):
        kind = f"CUDNN_BACKEND_{made[1].replace('config', 'cfg').replace(' ', '').upper()}_DESCRIPTOR"
        yield Break("refused", "cudnnBackendCreateDescriptor", only=(kind,))
    elif clause.function.startswith(USE_CASES) and (clause.kind == "shape" or "dimensions [" in clause.text):
        yield Break(
            "argument",
            "cudnnBackendSetAttribute",
            "arrayOfElements",
            only=("CUDNN_ATTR_TENSOR_DIMENSIONS",),
            kind="shape",
        )
    elif clause.function.startswith(USE_CASES) and (named := [word for word in words if word in ENUMERATIONS]):
        yield Break("accepted", "cudnnBackendSetAttribute")
        yield from (Break("enumerator", "cudnnBackendSetAttribute", "", kind) for kind in named)
    elif re.search("[Ff]inaliz", clause.text):
        yield Break("accepted", "cudnnBackendFinalize")
        yield Break("refused", "cudnnBackendFinalize")
    elif places:
        if clause.kind == "semantics":
            yield Break(ELEMENT, "cudnnFusedOpsExecute", only=places)
        for function in CHECKED.get(clause.function, ()) if unnamed or clause.kind != "shape" else ():
            yield Break("accepted", function, only=places)
        yield Break("refused", "cudnnFusedOpsExecute", only=places)


def _attributes_of(clause: Any, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the descriptor of the backend that a sentence is about, and the attributes that it names."""
    own = (clause.function,) if clause.function.startswith("CUDNN_BACKEND_") and clause.kind == "dtype" else ()
    return (*own, *(word for word in words if own and _types().get(word) == "cudnnBackendAttributeName_t"))


def _of_enumerators(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks that replace an enumerator in the text, or any of its type."""
    types = _types()
    named = [word for word in words if word in types]
    own = [word for word in named if types[word] == clause.function] or [""]
    for word in own:
        only = tuple(other for other in named if other not in own)
        if clause.function == "cudnnStatus_t":
            yield Break("status", "", word)
            continue
        if DEMANDS.search(clause.text) and word:
            yield Break("accepted", "", "", only=(word,))
        if clause.kind == "determinism":
            yield from _of_determinism(clause, (word,))
        if word and word == own[0] and SIMILAR.search(clause.text):
            yield Break(SPECIAL if clause.kind == "nan" else ELEMENT, only=(word,))
        if clause.function in GRAPH_TYPES:
            members = [member.name for member in ENUMERATIONS[clause.function]]
            yield from (
                Break("refused", "cudnnBackendSetAttribute", only=(name,)) for name in members[:1] if len(members) == 1
            )
            if DEMANDS.search(clause.text):
                yield Break("accepted", "cudnnBackendFinalize")
            yield Break("enumerator", "cudnnBackendSetAttribute", word, clause.function)
        yield Break("enumerator", "", word, clause.function, only)
        yield from (Break("enumerator", "", word, clause.function, step=step) for step in (-1, 1))
        if "PlaceHolder" in clause.function:
            yield Break("enumerator", "cudnnSetFusedOpsConstParamPackAttribute", word, clause.function)
        yield from (
            Break("result", name, "algo") for name in _returning(clause.function.replace("Algo_t", "AlgoPerf_t"))
        )
        for name, function in functions().items():
            if any(p.base_type == clause.function for p in function.arguments):
                yield Break("enumerator", name, word, clause.function)
            elif any(p.base_type == clause.function for p in function.parameters):
                yield Break("result", name, next(p.name for p in function.parameters if p.base_type == clause.function))
    for word in named:
        if types[word] != clause.function:
            yield Break("enumerator", "", word, types[word])
    for function in (functions()[word] for word in words if word in functions()):
        yield Break("enumerator", function.name, "", clause.function)
        yield from (
            Break("accepted", function.name, p.name) for p in function.arguments if p.base_type == clause.function
        )


def _of_determinism(clause: Any, only: tuple[str, ...]) -> Iterator[Break]:
    """Yield a break of equal results, or of what queries report of an algorithm whose results may differ."""
    if VARYING.search(clause.text):
        kind = f"{clause.function.removesuffix('Algo_t')}AlgoPerf_t"
        yield from (Break("result", name, "determinism") for name in _returning(kind))
        return
    function = clause.function if known(clause.function) else ""
    yield Break("unsteady", function, only=only)


def _returning(kind: str) -> Iterator[str]:
    """Yield the functions that return results of searches of a type."""
    for name, function in functions().items() if kind.endswith("Perf_t") else ():
        if any(p.is_returned and p.base_type == kind for p in function.parameters):
            yield name


def _of_type(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of calls that take an object or enumerator of the type: its named parameters, its setter,
    its creation.
    """
    creator = "cudnnCreate" if clause.function == "cudnnHandle_t" else f"cudnnCreate{clause.function[5:-2]}"
    for name, function in functions().items():
        if not any(p.base_type == clause.function for p in function.arguments):
            continue
        if creator in functions() and DEMANDS.search(clause.text):
            yield Break("accepted", name)
        if name.startswith("cudnnSet") and function.arguments[0].base_type == clause.function:
            yield Break("nothing", name)
        yield from _of_named_parameters(clause, function, [p for p in function.parameters if p.name in words])
    if creator in functions():
        yield Break("refused", creator)


def _of_function(clause: Any, function: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of one function: of the parameters in the text, or else of all that it computes or returns."""
    types, parameters = _types(), {p.name: p for p in function.parameters}
    device = [p for p in function.parameters if p.memory == "device" and len(p.name) > 2]
    parameters |= {word: p for p in device for word in (p.name.lower(), p.name.capitalize())}
    if "exponentialAverageFactor" in parameters:
        parameters["factor"] = parameters["exponentialAverageFactor"]  # Formulas call it so.
    named = list(dict.fromkeys(parameters[word] for word in words if word in parameters))
    demands = DEMANDS.search(clause.text) is not None or DEMAND in sorts_of(clause)
    if clause.kind == "aliasing":
        yield Break("shared memory refused", function.name)
    if clause.kind == "determinism":
        yield from _of_determinism(clause, ())
    if demands or _refuses(clause):
        only = tuple(f"CUDNN_{word.upper()}" for word in DIRECTION.findall(clause.text))
        yield from (Break("accepted", function.name, p.name, only=only) for p in _subjects(clause.text, named))
    if function.name == "cudnnSetCallback":
        yield from _of_callback(words)
    if SHRINKS.search(clause.text):
        yield from (Break("unequal refused", function.name, p.name) for p in named if p.name.endswith("Desc"))
    yield from _of_offers(clause, function, [word for word in words if word in types])
    if CHOSEN.search(clause.text):
        kinds = [ENUMERATIONS[p.base_type] for p in named if p.base_type in ENUMERATIONS]
        yield from (Break("refused", function.name, only=(member.name,)) for kind in kinds for member in kind)
    if UNHELD.search(clause.text):
        yield from (Break("held contents refused", function.name, p.name) for p in named if p.memory == "device")
    for word in words:
        if word in types:
            yield from (Break("enumerator", function.name, word, types[word], step=step) for step in (0, -1, 1))
    if clause.kind == "default":
        creator = next(
            (
                f
                for f in functions()
                if f.startswith("cudnnCreate")
                and f.removeprefix("cudnnCreate") == function.name.removeprefix("cudnnSet")
            ),
            "",
        )
        yield from (Break("preset", creator, p.name) for p in named if creator)
        getter = function.name.replace("Set", "Get")
        yield from (
            Break("result", getter) for _ in range(getter in functions() and PRESET.search(clause.text) is not None)
        )
    others = [functions()[word] for word in words if word in functions() and word != function.name]
    if clause.kind == "shape" and function.name.endswith("OutputDim") and not any(p.is_returned for p in named):
        yield Break("result", function.name)
    if clause.kind == "ordering":
        yield from (
            Break("unwritten", f.name, p.name) for f in others for p in f.parameters if p.name == "reserveSpace"
        )
    yield from (Break(how, function.name) for how, words in ROUNDED.items() if words.search(clause.text))
    yield from _of_named_parameters(clause, function, named)
    for other in others:
        yield from _of_named_parameters(clause, other, [p for p in other.parameters if p.name in words])
        yield from (Break("enumerator", other.name, word, types[word]) for word in words if word in types)
        if any(p.direction == "out" and p.base_type.endswith("Descriptor_t") for p in other.arguments):
            yield Break("stored", other.name, kind="shape")
        if demands:
            yield Break("accepted", other.name)
    if clause.kind == "lifetime" and "Destroy" in function.name:
        yield Break("nothing", function.name)
    if function.name in SPACES_OF and "reserveSpace" in words:
        first, last = SPACES_OF[function.name]
        yield Break("unread", last, "reserveSpace")
        yield Break("unwritten", first, "reserveSpace")
    if any(word.startswith("CUDNN_ATTN_") for word in words):
        yield Break("meaning", "cudnnSetAttnDescriptor", "attnMode")
    setter = functions().get(function.name.replace("Get", "Set"))
    if setter and "Set" in setter.name and clause.kind == "layout" and not _refuses(clause):
        places = [p for p in setter.arguments[1:] if p.name in words or PLACING.search(p.name)]
        yield from (Break("meaning", setter.name, p.name, kind=clause.kind) for p in places)
    reports = re.match(r"(Returns|Reports|Retrieves)\b", clause.text) is not None
    if (reports or (clause.kind == "workspace" and not named)) and "Get" in function.name and not _refuses(clause):
        yield Break("result", function.name)
    if clause.kind in ("support", "layout", "shape") and EVERY_LAYOUT.search(clause.text):
        yield Break("layout refused", function.name)
    if (demands and function.arguments) or _refuses(clause):
        subjects = [
            p for p in named if p.memory == "device" or (p.name not in SETTINGS and DIMENSIONS.search(clause.text))
        ]
        if _refuses(clause) or not subjects:
            yield Break("accepted", function.name, only=only)
        return
    if clause.kind in ("dtype", "support", "layout") and ALLOWS.search(clause.text):
        only = tuple(word for word in words if word in types)
        yield Break("refused", function.name, only=only)
    whole = (
        WHOLE.match(clause.text)
        or "Execute" in function.name
        or not [p for p in named if p.base_type != "cudnnHandle_t"]
    )
    if whole and (clause.kind != "workspace" or "Get" in function.name):
        yield from _of_all(clause, function)


def _of_offers(clause: Any, function: Any, named: list[str]) -> Iterator[Break]:
    """Yield breaks of what a sentence offers for one format, data type or mode."""
    if GROUPED.search(clause.text):
        yield Break("refused", function.name, only=(*(place_of_row(clause) or named), GROUPS))
    if found := ARITHMETIC.search(clause.text):
        yield from (
            Break("refused", function.name, only=(found[1], name)) for name in re.findall(r"CUDNN_\w+", found[2])
        )
    if found := WITH_MODE.search(clause.text):
        yield Break("meaning", function.name, found[2], only=(found[1],))


def _subjects(text: str, named: list[Any]) -> list[Any]:
    """Return the parameters that a demand may be about, those before its verb first.

    Others than settings are compared with settings, and one dimension with other operands.
    """
    head = re.findall(r"\w+", head_of(text))
    first = [p for p in named if p.name in head and p.name not in SETTINGS]
    others = [p for p in named if p.name not in SETTINGS and p not in first]
    return first if first and DIMENSIONS.search(text) else [*first, *others] or named


def _of_callback(words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of a callback's arguments."""
    yield from (
        Break("called back", "cudnnSetCallback", said) for said in dict.fromkeys(SAID[w] for w in words if w in SAID)
    )
    if not SAID.keys() & set(words):
        yield Break("called back", "cudnnSetCallback")
        yield Break("called back", "cudnnSetCallback", "undue")
        yield Break("nothing", "cudnnSetCallback")


def _of_named_parameters(clause: Any, function: Any, named: list[Any]) -> Iterator[Break]:
    for p in named:
        if PERMITS.search(clause.text) and not p.is_returned:
            if clause.kind == "default" or "zero" in clause.text:
                yield Break("filled", function.name, p.name)
            yield Break("NULL refused", function.name, p.name)
            yield from (
                Break("NULL refused", function.name, p.name, only=(name,))
                for name in matters_of(clause) if name in _types()
            )  # fmt: skip
    outputs = sum(p.memory == "device" and p.direction != "in" for p in function.parameters)
    for p in sorted(named, key=lambda p: _coarseness(p, outputs)):
        yield from _of_parameter(clause, function, p)


def _coarseness(p: Any, outputs: int) -> int:
    """Return how much a break of a parameter breaks besides its sentence: most where the only output is missing."""
    if p.base_type == "cudnnHandle_t":
        return 3
    if p.memory != "device" or (p.direction != "in" and outputs > 1):
        return 0
    return 1 if p.direction == "in" else 2


def _of_parameter(clause: Any, function: Any, p: Any) -> Iterator[Break]:
    if p.is_returned:
        if SORTED.search(clause.text):
            yield Break("unordered", function.name)
        yield Break("result", function.name, p.name)
    elif p.direction == "out" and p.memory == "host":
        yield Break("stored", function.name, p.name, kind=clause.kind)
    elif p.memory == "device":
        ways = {"unread": p.direction != "out", "unwritten": p.direction != "in"}
        if clause.kind in ("layout", "shape"):
            yield Break("misread" if p.direction == "in" else MISPLACED, function.name, p.name)
        if p.name == "indices":
            yield Break(INDEX, function.name, p.name)
        for how in sorted(ways, reverse=RECEIVES.search(clause.text) is not None):
            if ways[how]:
                yield Break(how, function.name, p.name)
        if BYTES.search(clause.text):
            yield Break(OVERRUN, function.name, p.name)
            yield Break("accepted", function.name, p.name)
            yield from (
                Break("argument", function.name, q.name) for q in function.arguments if q.name == f"{p.name}SizeInBytes"
            )
    elif p.base_type != "cudnnHandle_t":
        if "Set" in function.name:
            yield Break("meaning", function.name, p.name, kind=clause.kind)
        yield Break("argument", function.name, p.name, kind=clause.kind)
        if clause.kind == "semantics" and p.base_type.endswith("Descriptor_t"):
            yield Break("argument", function.name, p.name, kind="shape")


def _of_all(clause: Any, function: Any) -> Iterator[Break]:
    """Yield breaks of everything a function does, for a text that names no parameter of it."""
    if any(p.memory == "device" and p.direction != "in" for p in function.parameters):
        if clause.kind in ("layout", "shape"):
            yield from (Break("misread", function.name) for _ in range(READS.search(clause.text) is not None))
            yield Break(MISPLACED, function.name)
        yield Break(ELEMENT, function.name)
        yield Break("unwritten", function.name)
    if "Execute" in function.name:
        yield Break(ELEMENT, function.name)
    if any(p.direction == "out" and p.memory == "host" and not p.is_returned for p in function.parameters):
        yield Break("stored", function.name, kind=clause.kind)
    if any(p.is_returned for p in function.parameters) or re.search("Version$|ErrorString", function.name):
        yield Break("result", function.name)
    elif re.search("Set|Init|Destroy|Finalize|Restore|Update|Clip", function.name):
        yield Break("nothing", function.name)
    if (
        clause.kind in ("lifetime", "ordering", "status")
        or "Create" in function.name
        or function.name.endswith("Check")
    ):
        yield Break("refused", function.name)


def _of_named_functions(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of other functions in the text."""
    for word in words:
        function = functions().get(word)
        if function is None or word == clause.function:
            continue
        if re.search("Set|Destroy|Finalize|Restore", word):
            yield Break("nothing", word)
        elif any(p.is_returned for p in function.parameters) and "Create" not in word:
            yield Break("result", word)
        yield Break("refused", word)
