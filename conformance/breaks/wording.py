"""Tell the matters that a sentence has in words, each with a break: dimensions, bounds, steps, limits of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.graph.attributes import TYPES

from .demands import DIMENSION
from .parts import place_of_row
from .places import node_of

Declared = dict[str, Any]  # fields of a break; its matter is always named
ORDINALS = {word: f"dimension {i}" for i, word in DIMENSION.items()}
PIECE = re.compile(r"[,;] (?:and )?")
DEMANDED_DIMENSION = re.compile(r"(first|second|third|fourth) (?:dimension )?equals\b")
ALIGNED = re.compile(
    r"^(CUDNN_FUSED_\w+): where a placeholder is (\w+), .*must be non-NULL and at least (element|16-byte) aligned"
)
MISALIGNED = {"element": "bytes of its elements", "16-byte": r"is at 0x\w+, its placeholder is"}  # what refusals say
# One of the functions behind these words must initialise an object.
INITIALISED = re.compile(r"\b(?:must be|is to be|must have been) (?:initiali[sz]ed|set) (?:by|with)\b(.*)")
TAKEN = re.compile(
    r"^(CUDNN_FUSED_\w+): (?:setting )?(CUDNN_PARAM_\w+) takes an initialised \w+Descriptor_t (?:for the (\w+) operation)?"
)
HELD = re.compile(r"^(\w+) holds exactly the data given to \w+\(\), and is NULL if")
WHEN = re.compile(r"^(\w+)\b.* is used only when an activation")
OF_WEIGHTS = re.compile(r"^(\w+Desc) is an already initiali[sz]ed filter descriptor .*\b(?:at|by) (w|dw)\.$")
STEPS = re.compile(r"^(\w+Desc) is an array (?:of|with) .*fully packed")
PER_STEP = re.compile(r"^(\w+Desc) has one tensor descriptor per ")
STRIDES = re.compile(r"^Strides of each (\w+)\b.* \{\w+, 1, 1\}")
# Such a refusal is of one stride alone: it shows the strides and the dimensions.
EACH_STRIDE = (
    r"\(\d+,\s1,\s1",
    r"\((\d+),\s(?!1,)\d+,\s1\) of \(\d+,\s\1,\s1",
    r"\((\d+),\s1,\s(?!1\))\d+\) of \(\d+,\s\1,\s1",
)
THREE = re.compile(r"\bthree dimensions\b|\b3-dimensional\b")
BY_MODE = re.compile(r"\bits dimensions depend on mode\b")
# A step of a use case sets such an attribute.
STEP = re.compile(r"^Step \w+: set (CUDNN_ATTR_\w+) .*\b(CUDNN_TYPE_\w+), (\d|one value per spatial dimension)\b")
SPATIAL = "3"  # spatial dimensions of the use case
OPAQUE = ("CUDNN_TYPE_BACKEND_DESCRIPTOR", "CUDNN_TYPE_HANDLE", "CUDNN_TYPE_VOID_PTR")  # types without other values
SETTER = "cudnnBackendSetAttribute"
GIVEN = re.compile(r"\b(?:defined|given) by rnnDesc and the input (?:width|dimensions)\b")
BYTES = re.compile(r"\bbytes?\b")
# Such a sentence says what an attribute holds. Refusals of anything else have these messages.
HOLDS = re.compile(r"(CUDNN_ATTR_\w+) (?:has attribute type|holds the descriptor)\b")
CANNOT_HOLD = {
    "other type": "the elements of",
    "too few": r"has \d+ to \d+ elements,\s(?:0|-\d+) are",
    "too many": r"has \d+ to \d+ elements,\s[1-9]\d* are",
    "other kind": "is not an element of",
}
UNLIMITED = {"too few": "element count: at most ", "too many": r"element count: \d or more\b"}
GETTER = "cudnnBackendGetAttribute"
CREATION = "creation"  # matter of the words that begin a sentence on a descriptor
CREATED = re.compile(r"Created (?:with|by passing) CUDNN_BACKEND_")
READ_ONLY = re.compile(r"(CUDNN_ATTR_\w+) is read-only: it can be queried")
PREFIXED = re.compile(r"The attributes of this descriptor type are the .* values prefixed")
FOREIGN = "is no attribute of"  # what the refusal of another descriptor's attribute says
# Such a search tries an algorithm with both math types.
BOTH_TYPES = re.compile(r"Each algorithm is tried with .*mathType.*\bdiffers?\b")
ANY_ALGORITHM = re.compile(r"^algo may come from \w+ or be (?:chosen arbitrarily|any choice)")
NO_ALGORITHM = re.compile(r"_DIRECT$|_COUNT$|BWD_FILTER_ALGO_WINOGRAD$")  # These algorithms are not implemented.
EVERY_ALGORITHM = re.compile(r"\bevery algorithm accepts any convDesc group count\b")
# Each place has the algorithms of the table of cudnnConvolutionForward.
ALGORITHMS_OF: dict[tuple[str, ...], tuple[str, ...]] = {
    ("CUDNN_TENSOR_NCHW", "xDesc_4D"): (
        "IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED",
    ),
    ("CUDNN_TENSOR_NCHW", "xDesc_5D"): ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "FFT_TILING"),
    ("CUDNN_TENSOR_NHWC", "xDesc_5D"): ("IMPLICIT_PRECOMP_GEMM",),
}  # fmt: skip
ANY_INPUT = re.compile(r"\bany (?:of the inputs|input parameter) is NULL\b")
NEEDED = re.compile(
    r"\bmay be NULL (?:if|when) (?:the|that) \w*(?: ?algorithm)? ?(?:needs none|needs no workspace|requires no workspace)|chosen algorithm needs no workspace|selected algorithm requires no workspace"
)
NO_PROMISE = re.compile(r"^(CUDNN_FUSED_\w+): where a constant-pack placeholder is CUDNN_PTR_NULL, .* must be NULL")
SPACE = re.compile(r"^(CUDNN_FUSED_\w+): (CUDNN_PTR_WORKSPACE|CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES) \(")
# A row of the tables of convolutions may permit these: words of the row, and what a descriptor in such a call holds.
PERMITTED = {
    "dilation": (r"dilations? (?:> 0|greater than 0)", r"dilation=\((?:\d+, )*[2-9]"),
    "groups": (r"group(?:s| count) (?:> 0|greater than 0)", r"group_count=[2-9]"),
}
# It may demand these: words of the row, and how the message of a refusal names the demand.
LIMITS = {
    "dilation 1": (r"\bdilation 1\b", "needs dilation"),
    "stride 1": (r"\bstrides? 1\b", "needs stride"),
    "padded input": (r"\+ ?2\*pad_h <= 256", "needs input sizes"),
    "filter size": (r"\bfilter (?:3x3|\(3,3\))", "needs a filter of"),
    "tiled filter": (r"<= 32\b|<= 16\b", "needs filter sizes of"),
    "padding": (r"\bfilter(?:_h| height) > pad", "needs filter sizes greater"),
    "input channels": (r"input and output channel counts multiples", "needs input channels"),
    "output channels": (r"input and output channel counts multiples", "needs output channels"),
}
# These limits hold in each dimension: what a descriptor holds before its sizes, one beyond the limit, and others.
EACH = {
    "dilation 1": (r"dilation=\(", "[2-9]", "1"),
    "stride 1": (r"stride=\(", "[2-9]", "1"),
    "padding": (r"padding=\(", "[3-9]", "[0-2]"),
    "padded input": (r"dims=\(\d+, \d+, ", r"\d{3}", r"\d{1,2}"),
}
RANK = {"2D": 2, "3D": 3}  # spatial dimensions, by the beginning of a row
SCALED = re.compile(r"^alpha other than 1 or beta other than 0 is refused")
VERSIONS = re.compile(r"^(?:Checks that|Takes no argument and compares)\b.*\bversion")
ALIKE = re.compile(
    r"^(\w+)(?: \(LSTM only\))? (?:is|has to be) fully packed and (?:set identically to|configured exactly as)\b"
)
NOT_LARGER = re.compile(
    r"\b(\w+)\[n\+1\] is less than or equal to\b|^(\w+) .*\bmay (?:decrease from element|shrink but not grow)\b"
)
OR_ONE = re.compile(r"dimension of (\w+) must equal the corresponding dimension of \w+ or be 1\b")
UNEQUAL = r"dims=(\([^)]*\)).*dims=(?!\1)\("  # in calls with tensors of different dimensions
OF_LSTM = re.compile(r"\b(?:concern|matter|apply)(?: for| to)? LSTM networks only")
CELL_STATES = ("cx", "cy", "dcx", "dcy")
NOT_LSTM = "CUDNN_RNN_RELU|CUDNN_RNN_TANH|CUDNN_GRU"
DILATED = re.compile(r"\bare refused when any dilation differs from 1\b")
ALGORITHM_NAMES = {"cudnnConvolutionBackwardFilter": "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_"}
EVERY_FORMAT = re.compile(
    r"(xDesc and yDesc|dxDesc|first (?:tensor )?column(?: \(\w+ dyDesc\)| \(dyDesc\))?)[^;]*? (?:any format|all(?: formats)?) (?:except|but)"
)


@cache
def sizes_of(clause: Any) -> tuple[str, ...]:
    """Return the sizes in bytes that a caller gives, if a sentence names them; too small ones must be refused."""
    known = functions().get(clause.function)
    # Such a search tries the algorithms for which the workspace is large enough.
    limits = clause.function.startswith("cudnnFindConvolution")
    if known is None or limits or clause.status or clause.kind != "workspace" or not BYTES.search(clause.text):
        return ()
    words = re.findall(r"\w+", clause.text)
    return tuple(p.name for p in known.arguments if p.name in words and p.name.endswith(("Size", "SizeInBytes")))


@cache
def worded(clause: Any) -> tuple[Declared, ...]:
    """Return the breaks of matters that a sentence has in words; nothing for most sentences."""
    found: tuple[Declared, ...] = (
        *_of_dimensions(clause), *_of_pointers(clause), *_of_objects(clause), *_of_step(clause), *_of_elements(clause),
        *_of_algorithms(clause), *_of_networks(clause), *_of_both_sides(clause), *_of_descriptors(clause), *_of_searches(clause),
        *_of_inputs(clause),
    )  # fmt: skip
    if GIVEN.search(clause.text):
        found += (
            {"how": "argument", "point": "rnnDesc", "kind": "shape", "matter": "rnnDesc"},
            {"how": "argument", "point": "xDesc", "kind": "width", "matter": "xDesc"},
        )
    small = ({"how": "accepted", "point": f"{name} is", "matter": name} for name in sizes_of(clause))
    return tuple({"function": clause.function, "clause": clause.id, **one} for one in (*found, *small))


def _of_dimensions(clause: Any) -> Iterator[Declared]:
    """Yield breaks of each dimension, and of the packing, that a sentence demands of one descriptor."""
    name, _, said = clause.text.partition(": ")
    pieces = PIECE.split(said.rstrip(".")) if clause.kind == "shape" else []
    named = [ORDINALS[found[1]] for piece in pieces if (found := DEMANDED_DIMENSION.match(piece))]
    named += ["strides" for piece in pieces if piece == "fully packed"]
    yield from (
        {"how": "accepted", "point": f"{name}, {what}", "matter": what, "clause": ""}
        for what in named
        if len(named) > 1
    )
    if found := STEPS.search(clause.text):
        said = {"number": r"has \d+ descriptors", "strides": r"\[0\] has strides"}
        said |= {"rank": r"\[0\] has dimensions"} if THREE.search(clause.text) else {}
        yield from (
            {"how": "accepted", "point": rf"{found[1]} ?{words}", "matter": what, "clause": ""}
            for what, words in said.items()
        )
    if found := PER_STEP.search(clause.text):
        yield {"how": "accepted", "point": rf"{found[1]} has \d+ descriptors", "matter": "number", "clause": ""}
    if found := STRIDES.search(clause.text):
        yield from (
            {"how": "accepted", "point": rf"{found[1]}\[0\] has strides {said}", "matter": f"stride {at}", "clause": ""}
            for at, said in enumerate(EACH_STRIDE)
        )
    if BY_MODE.search(clause.text):
        yield {"how": "argument", "point": "mode", "kind": "shape", "matter": "mode"}


def _of_pointers(clause: Any) -> Iterator[Declared]:
    """Yield breaks of what a sentence says of NULL, of alignment, and of the memory beside its descriptor."""
    if found := ALIGNED.search(clause.text):
        for what, said in (("NULL", f"is NULL, its placeholder is {found[2]}"), ("alignment", MISALIGNED[found[3]])):
            yield {
                "how": "accepted", "function": "cudnnFusedOpsExecute", "point": said, "only": (found[1],), "matter": what,
            }  # fmt: skip
    if found := WHEN.search(clause.text):
        yield {"how": "unread", "point": found[1], "matter": "use"}
        yield {"how": "NULL refused", "point": found[1], "matter": "otherwise"}
    if found := NO_PROMISE.search(clause.text):
        yield {
            "how": "accepted", "function": "cudnnFusedOpsExecute", "point": "its placeholder is CUDNN_PTR_NULL",
            "only": (found[1],), "matter": "NULL", "clause": "",
        }  # fmt: skip
    if found := SPACE.search(clause.text):
        run = {"how": "accepted", "function": "cudnnFusedOpsExecute", "only": (found[1],)}
        if "FINALIZE" not in found[1]:  # These sequences need no workspace.
            yield {**run, "point": f"{found[2]} is", "matter": "needed"}
        if found[2] == "CUDNN_PTR_WORKSPACE":
            yield {
                "how": "NULL refused", "function": "cudnnSetFusedOpsVariantParamPackAttribute", "point": "ptr",
                "only": found.groups(), "matter": "NULL",
            }  # fmt: skip
    if found := HELD.search(clause.text):
        yield {"how": "unread", "point": found[1], "matter": "contents"}
        yield {"how": "NULL refused", "point": found[1], "matter": "NULL"}
    if found := OF_WEIGHTS.search(clause.text):
        yield {"how": "accepted", "point": found[1], "matter": found[1]}
        yield {"how": "unread" if found[2] == "w" else "unwritten", "point": found[2], "matter": "contents"}


def _of_descriptors(clause: Any) -> Iterator[Declared]:
    """Yield breaks of how a descriptor of the backend is made, which attributes it has, and which can only be read."""
    kind = clause.function
    if CREATED.match(clause.text):
        yield {
            "how": "enumerator", "function": "cudnnBackendCreateDescriptor", "point": kind,
            "type": "cudnnBackendDescriptorType_t", "matter": CREATION,
        }  # fmt: skip
    if found := READ_ONLY.match(clause.text):
        yield {"how": "refused", "function": GETTER, "only": (kind, found[1]), "matter": "queried"}
        yield {"how": "accepted", "function": SETTER, "only": (kind, found[1]), "matter": "not set"}
    if PREFIXED.match(clause.text):
        for name, attribute in TYPES[Kind[kind]].attributes.items():
            if not attribute.unsupported:
                function = GETTER if attribute.read_only else SETTER
                yield {"how": "refused", "function": function, "only": (kind, name.name), "matter": name.name}
        yield {"how": "accepted", "function": SETTER, "point": FOREIGN, "only": (kind,), "matter": "others"}


def _of_searches(clause: Any) -> Iterator[Declared]:
    """Yield breaks of each algorithm that a sentence permits, and of the math types that a search tries."""
    known = functions().get(clause.function)
    if known is None or clause.status:
        return
    if BOTH_TYPES.search(clause.text):
        math = {"how": "enumerator", "point": "CUDNN_TENSOR_OP_MATH", "type": "cudnnMathType_t"}
        yield {**math, "matter": "the type of convDesc"}
        yield {"how": "result", "point": "mathType", "only": ("CUDNN_TENSOR_OP_MATH",), "matter": "both"}
    if ANY_ALGORITHM.search(clause.text):
        kinds = (ENUMERATIONS[p.base_type] for p in known.arguments if p.name == "algo")
        members = [member.name for kind in kinds for member in kind if not NO_ALGORITHM.search(member.name)]
        yield from ({"how": "refused", "only": (name,), "matter": name} for name in members)
    if EVERY_ALGORITHM.search(clause.text) and (place := place_of_row(clause)):
        for name in ALGORITHMS_OF[place]:
            yield {
                "how": "refused", "only": (*place, r"group_count=[2-9]", f"CUDNN_CONVOLUTION_FWD_ALGO_{name}"),
                "matter": name,
            }  # fmt: skip


def _of_inputs(clause: Any) -> Iterator[Declared]:
    """Yield breaks of each input that must not be NULL, and of a workspace that an algorithm needs."""
    known = functions().get(clause.function)
    if known and clause.status and ANY_INPUT.search(clause.text):
        names = [
            p.name for p in known.arguments if p.base_type.endswith(("Handle_t", "Descriptor_t", "Plan_t", "Pack_t"))
        ]
        outputs = {p.name for p in known.arguments if p.direction == "out"}
        yield from ({"how": "accepted", "point": name, "matter": name} for name in names if name not in outputs)
    if known and NEEDED.search(clause.text):
        yield {"how": "NULL refused", "point": "workSpace", "matter": "NULL"}
        yield {"how": "accepted", "point": "workSpace is NULL", "matter": "needed", "clause": ""}


def _of_objects(clause: Any) -> Iterator[Declared]:
    """Yield breaks of each function that initialises an object, and of the demand that one of them does."""
    found = INITIALISED.search(clause.text)
    setters = [name for name in re.findall(r"cudnn\w+", found[1]) if name in functions()] if found else []
    yield from ({"how": "nothing", "function": name, "matter": name} for name in setters)
    if setters:
        own = clause.function if clause.function in functions() and "Create" not in clause.function else ""
        yield {"how": "accepted", "function": own, "matter": "demand"}
    if found := TAKEN.search(clause.text):
        base = {"function": "cudnnSetFusedOpsConstParamPackAttribute", "only": found.groups()[:2]}
        yield {**base, "how": "accepted", "point": f"{found[2]} takes", "matter": "initialised", "clause": ""}
        if found[3]:
            yield {**base, "how": "argument", "point": "param", "kind": "shape", "matter": found[3]}


def _of_networks(clause: Any) -> Iterator[Declared]:
    """Yield breaks of states that only networks of LSTM cells have: others take them as NULL."""
    words = re.findall(r"\w+", clause.text) if OF_LSTM.search(clause.text) else []
    for name in (word for word in words if word in CELL_STATES):
        written = name.endswith("y") == (not name.startswith("d"))
        yield {"how": "unwritten" if written else "unread", "point": name, "only": ("CUDNN_LSTM",), "matter": name}
        yield {"how": "NULL refused", "point": name, "only": (NOT_LSTM,), "matter": f"{name} of other cells"}


def _of_both_sides(clause: Any) -> Iterator[Declared]:
    """Yield breaks of sentences with two demands, or with a demand and what it leaves free."""
    if SCALED.search(clause.text):
        yield from ({"how": "accepted", "point": name, "matter": name} for name in ("alpha", "beta"))
    if VERSIONS.search(clause.text):
        yield {"how": "accepted", "matter": "versions"}
    if found := ALIKE.search(clause.text):
        yield from (
            {"how": "accepted", "point": f"{found[1]}, {what}", "matter": what, "clause": ""}
            for what in ("strides", "dimensions")
        )
    if found := OR_ONE.search(clause.text):
        yield {"how": "accepted", "point": found[1], "matter": found[1]}
        yield {"how": "refused", "only": (UNEQUAL,), "matter": "or 1"}
    if found := NOT_LARGER.search(clause.text):
        name = found[1] or found[2]
        yield {"how": "accepted", "point": name, "matter": "larger"}
        yield {"how": "unequal refused", "point": name, "matter": "smaller"}


def _of_step(clause: Any) -> Iterator[Declared]:
    """Yield breaks of the type, the number and the values of the elements that a step of a use case sets."""
    found = STEP.search(clause.text)
    if found is None:
        return
    label, kind, count = found.groups()
    number = count if count.isdigit() else SPATIAL
    yield {"how": "nothing", "function": SETTER, "only": (label,), "matter": label}
    yield {"how": "refused", "function": SETTER, "only": (label, kind), "matter": kind}
    yield {"how": "refused", "function": SETTER, "only": (label, kind, number), "matter": "number"}
    if kind not in OPAQUE:
        yield {"how": "argument", "function": SETTER, "point": "arrayOfElements", "only": (label,), "matter": "values"}


def _of_elements(clause: Any) -> Iterator[Declared]:
    """Yield breaks of what an attribute cannot hold: elements of another type or number, descriptors of another kind."""
    label = HOLDS.match(clause.text)
    name = Name.__members__.get(label[1]) if label else None
    attribute = TYPES[Kind[clause.function]].attributes[name] if name else None
    if label is None or attribute is None or attribute.unsupported:
        return
    if attribute.read_only:
        yield {
            "how": "accepted", "function": "cudnnBackendGetAttribute", "point": CANNOT_HOLD["other type"],
            "only": (clause.function, label[1]), "matter": "other type", "clause": "",
        }  # fmt: skip
        return
    for what, said in CANNOT_HOLD.items():
        held = what != "other kind" or OPAQUE[0] in clause.text
        if held and not (what in UNLIMITED and re.search(UNLIMITED[what], clause.text)):
            yield {
                "how": "accepted", "function": SETTER, "point": said, "only": (clause.function, label[1]), "matter": what,
                "clause": "",
            }  # fmt: skip
    if "holds" in label[0]:  # What the descriptor is for shows in a run, and so does another one of its kind.
        yield {"how": "element", "function": "cudnnBackendExecute", "only": node_of(clause), "matter": "use"}
        yield {
            "how": "argument", "function": SETTER, "point": "arrayOfElements", "only": (clause.function, label[1]), "matter": "descriptor",
        }  # fmt: skip


def of_row(clause: Any, algorithms: tuple[str, ...]) -> Iterator[Declared]:
    """Yield breaks of the formats, dilations, groups and limits in a row of a table of convolutions."""
    text, base, place = clause.text, {"function": clause.function}, place_of_row(clause)
    tensors = {"f": ("dyDesc",), "d": ("dxDesc",), "x": ("xDesc", "yDesc")}
    formats = [name for found in EVERY_FORMAT.finditer(text) for name in tensors[found[1][0]]]
    for algorithm in algorithms:
        for what, (words, held) in PERMITTED.items():
            if re.search(words, text):
                yield {**base, "how": "refused", "only": (algorithm, held, *place), "matter": what}
        for name in formats:
            yield {
                **base,
                "how": "layout refused",
                "point": name,
                "only": (algorithm, *place),
                "matter": f"{name} in any format",
            }
        for what, (words, said) in LIMITS.items():
            if re.search(words, text):
                yield {**base, "how": "accepted", "point": said, "only": (algorithm, *place), "matter": what}
                if what in EACH:
                    yield from (
                        {**base, **one, "only": (*one["only"], *place), "point": said}
                        for one in _in_each(algorithm, what, RANK[text[:2]])
                    )


def _in_each(algorithm: str, what: str, rank: int) -> Iterator[Declared]:
    """Yield a break for each dimension in which alone a limit of an algorithm is exceeded."""
    begin, beyond, within = EACH[what]
    for at in range(rank):
        held = begin + ", ".join(beyond if i == at else within for i in range(rank))
        yield {"how": "accepted", "only": (algorithm, held), "matter": f"{what} of {algorithm} in dimension {at}"}


def _of_algorithms(clause: Any) -> Iterator[Declared]:
    """Yield breaks of a dilation in each dimension that a sentence forbids some algorithms."""
    begin = ALGORITHM_NAMES.get(clause.function, "") if DILATED.search(clause.text) else ""
    for name in re.findall(r"\bALGO_(\w+)", clause.text) if begin else ():
        yield from _in_each(f"{begin}{name}", "dilation 1", 2)
