"""Derives the breaks of a clause from its kind and from what its text names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions

# Sentences that forbid or demand something, which a refusal shows.
DEMANDS = re.compile(
    r"\b(must|has to|have to|should|cannot|only|not (be|allowed|supported|to)|required|read-only|unsupported|restricted|at most|at least|equals?|identical)\b"
)
PERMITS = re.compile(r"\b(may be NULL|can be NULL|NULL means|== ?NULL|=NULL|is NULL|optional)\b")
REFUSALS = ("accepted", "status")  # the breaks of clauses that demand a refusal
ALLOWS = re.compile(r"\b(support(s|ed)?|accept(s|ed)?|may|can|works?|allow(s|ed)?|permit(s|ted)?)\b|_CONFIG")
UNHELD = re.compile(r"need not be|may change|not read|carr(y|ies) (no|nothing)|overwritten|no information")
# Enumerations of the names of attributes -> the setter, the getter and the parameter that takes such a name
ATTRIBUTES = {
    "cudnnBackendAttributeName_t": ("cudnnBackendSetAttribute", "cudnnBackendGetAttribute", "attributeName"),
    "cudnnFusedOpsConstParamLabel_t": (
        "cudnnSetFusedOpsConstParamPackAttribute", "cudnnGetFusedOpsConstParamPackAttribute", "paramLabel",
    ),
    "cudnnFusedOpsVariantParamLabel_t": (
        "cudnnSetFusedOpsVariantParamPackAttribute", "cudnnGetFusedOpsVariantParamPackAttribute", "paramLabel",
    ),
}  # fmt: skip
USE_CASES = ("operation_graph_", "engine_configuration", "execution_plan", "descriptor_life_cycle")  # of chapter 9
# Enumerators that a text names beside that of its subject and that say where the sentence holds
PLACES = ("CUDNN_FUSED_",)
ELEMENT = "element"  # the break of one element of an output, which is made where the case reads memory back
CHECKED = {  # subjects whose demands another call checks
    "cudnnFusedOpsConstParamLabel_t": ("cudnnMakeFusedOpsPlan", "cudnnFusedOpsExecute"),
    "cudnnFusedOpsVariantParamLabel_t": ("cudnnFusedOpsExecute",),
}


@dataclass(frozen=True)
class Break:
    """One way in which calls are wrong.

    how: a key of ``HOWS``, or "element" of a fault of memory. function: whose calls, of all where empty. point: a parameter, a
    field of a result or an enumerator; all where empty. type: the enumeration of the enumerator. only: enumerators that
    the arguments say. kind: of the clause. backwards: whether an enumerator is taken for the one before it rather than behind it.
    """

    how: str
    function: str = ""
    point: str = ""
    type: str = ""
    only: tuple[str, ...] = ()
    kind: str = ""
    backwards: bool = False

    def __str__(self) -> str:
        where = ".".join(filter(None, (self.function, self.point or self.type)))
        return f"{self.how} {where or '*'}" + (f" where {', '.join(self.only)}" if self.only else "")


@cache
def _types() -> dict[str, str]:
    """Return the enumeration of each enumerator of the document."""
    return {member.name: name for name, kind in ENUMERATIONS.items() for member in kind}


def breaks_of(clause: Any) -> tuple[Break, ...]:
    """Return the breaks of a clause, the one that speaks most of it first."""
    return tuple(broken for broken in dict.fromkeys(_breaks(clause)) if not _refuses(clause) or broken.how in REFUSALS)


def _refuses(clause: Any) -> bool:
    """Return whether a clause is of a refusal; of the second document, sentences on what calls compute name a status, too."""
    succeeds = not clause.status or clause.status.endswith("STATUS_SUCCESS")
    return not succeeds and clause.kind != "semantics"


def _breaks(clause: Any) -> Iterator[Break]:
    words = tuple(dict.fromkeys(re.findall(r"\w+", clause.text)))
    known = functions().get(clause.function) or miopen_functions().get(clause.function)
    if clause.status and clause.status.endswith("STATUS_SUCCESS"):
        if known:
            yield Break("refused", clause.function)
        yield from (Break("refused", word, only=(clause.function,)) for word in words if word in functions())
        return
    if clause.function in ATTRIBUTES or clause.function.startswith(("CUDNN_BACKEND_", *USE_CASES)):
        yield from _of_attributes(clause, words)
    elif clause.function in ENUMERATIONS:
        yield from _of_enumerators(clause, words)
    if known:
        yield from _of_function(clause, known, words)
    if clause.function.endswith("_t"):
        yield from (
            Break("result", "", word) for word in words if not word.startswith(("CUDNN", "cudnn")) and len(word) > 3
        )
    if not known and not clause.function.startswith("CUDNN_BACKEND_"):
        yield from _of_named_functions(clause, words)


def _of_attributes(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of the calls that set and read the attributes which a text names."""
    types = _types()
    places = tuple(word for word in words if word.startswith(PLACES))[:1]
    if clause.function.startswith("CUDNN_BACKEND_"):
        places = (clause.function,)
    for word in words:
        if types.get(word) not in ATTRIBUTES:
            continue
        setter, getter, parameter = ATTRIBUTES[types[word]]
        only = (*places, word)
        if clause.kind == "default":
            yield Break("result", getter, only=only)
        if DEMANDS.search(clause.text):
            yield Break("accepted", setter, only=only)
            for function in CHECKED.get(clause.function, ("cudnnBackendFinalize",)):
                yield Break("accepted", function, word)
        if "attributeType" in parameter or "attribute type" in clause.text:
            yield Break("argument", setter, "attributeType", only=only)
        if re.search("return|read|report|retriev", clause.text):
            yield Break("result", getter, only=only)
            continue
        yield Break("argument", setter, parameter, only=only)
        yield Break("argument", getter, parameter, only=only)
        yield Break("result", getter, only=only)
    for word in words:
        if word in types and types[word] not in ATTRIBUTES and word not in places:
            yield Break("enumerator", "", word, types[word])
            yield Break("enumerator", "cudnnBackendSetAttribute", word, types[word])
            yield Break("enumerator", "cudnnBackendCreateDescriptor", word, types[word])
    if clause.function.startswith("CUDNN_BACKEND_"):
        yield Break("accepted", "cudnnBackendFinalize", only=places)
        if clause.kind in ("semantics", "shape", "layout"):
            yield Break(ELEMENT, "cudnnBackendExecute")
        yield Break("enumerator", "cudnnBackendCreateDescriptor", clause.function, "cudnnBackendDescriptorType_t")
    elif re.search("[Ff]inaliz", clause.text):
        yield Break("accepted", "cudnnBackendFinalize")
        yield Break("refused", "cudnnBackendFinalize")
    elif places:
        if clause.kind == "semantics":
            yield Break(ELEMENT, "cudnnFusedOpsExecute")
        for function in CHECKED.get(clause.function, ()):
            yield Break("accepted", function, only=places)
        yield Break("refused", "cudnnFusedOpsExecute")


def _of_enumerators(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks in which an enumerator that the text names, or any of its type, is taken for another."""
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
            yield Break("unsteady", only=(word,))
        yield Break("enumerator", "", word, clause.function, only)
        yield Break("enumerator", "", word, clause.function, backwards=True)
        for name, function in functions().items():
            if any(p.base_type == clause.function for p in function.arguments):
                yield Break("enumerator", name, word, clause.function)
            elif any(p.base_type == clause.function for p in function.parameters):
                yield Break("result", name, next(p.name for p in function.parameters if p.base_type == clause.function))
    for word in named:
        if types[word] != clause.function:
            yield Break("enumerator", "", word, types[word])


def _of_function(clause: Any, function: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of one function: of the parameters that a text names, or else of all that it computes or returns."""
    types, parameters = _types(), {p.name: p for p in function.parameters}
    named = [parameters[word] for word in words if word in parameters]
    demands = DEMANDS.search(clause.text) is not None
    if clause.kind == "aliasing":
        yield Break("shared memory refused", function.name)
    if clause.kind == "determinism":
        yield Break("unsteady", function.name)
    if demands or _refuses(clause):
        yield from (Break("accepted", function.name, p.name) for p in named)
    for p in named:
        if PERMITS.search(clause.text) and not p.is_returned:
            yield Break("NULL refused", function.name, p.name)
            if clause.kind == "default":
                yield Break("filled", function.name, p.name)
    if UNHELD.search(clause.text):
        yield from (Break("held contents refused", function.name, p.name) for p in named if p.memory == "device")
    for word in words:
        if word in types:
            yield Break("enumerator", function.name, word, types[word])
            yield Break("enumerator", function.name, word, types[word], backwards=True)
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
    for p in sorted(named, key=lambda p: p.base_type == "cudnnHandle_t"):
        yield from _of_parameter(clause, function, p)
    if demands or _refuses(clause):
        yield Break("accepted", function.name)
        return
    if clause.kind in ("dtype", "support", "layout") and ALLOWS.search(clause.text):
        only = tuple(word for word in words if word in types)
        yield Break("refused", function.name, only=only)
    if not named and clause.kind != "workspace":
        yield from _of_all(clause, function)


def _of_parameter(clause: Any, function: Any, p: Any) -> Iterator[Break]:
    if p.is_returned:
        yield Break("result", function.name, p.name)
    elif p.memory == "device":
        yield Break("unread" if p.direction == "in" else "unwritten", function.name, p.name)
        if p.direction == "inout":
            yield Break("unread", function.name, p.name)
    elif p.base_type != "cudnnHandle_t":
        if "Set" in function.name:
            yield Break("meaning", function.name, p.name, kind=clause.kind)
        yield Break("argument", function.name, p.name, kind=clause.kind)


def _of_all(clause: Any, function: Any) -> Iterator[Break]:
    """Yield breaks of whatever a function does, for a text that names nothing of it."""
    if any(p.memory == "device" and p.direction != "in" for p in function.parameters):
        yield Break(ELEMENT, function.name)
        yield Break("unwritten", function.name)
    if any(p.is_returned for p in function.parameters):
        yield Break("result", function.name)
    elif re.search("Set|Init|Destroy|Finalize|Restore|Update|Clip", function.name):
        yield Break("nothing", function.name)
    if clause.kind in ("lifetime", "ordering", "status") or "Create" in function.name:
        yield Break("refused", function.name)


def _of_named_functions(clause: Any, words: tuple[str, ...]) -> Iterator[Break]:
    """Yield breaks of other functions that a text names."""
    for word in words:
        function = functions().get(word)
        if function is None or word == clause.function:
            continue
        if re.search("Set|Destroy|Finalize|Restore", word):
            yield Break("nothing", word)
        elif any(p.is_returned for p in function.parameters) and "Create" not in word:
            yield Break("result", word)
        yield Break("refused", word)
