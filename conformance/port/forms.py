"""Completes and checks forms.json, the table of each cuDNN call, with the function tables of both documents.

A form names a MIOpen function. Its parameters come from cuDNN's by name, or by ``from`` and ``constant``. It holds
``when`` the arguments are the listed literals. Otherwise the call goes to the helper of the same name. The helper has
the parameters of the cuDNN function in its order, so that nothing can be lost or swapped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any

from dualdnn.api.document import functions as cudnn_functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.miopen.enumerations import ENUMERATIONS as MIOPEN_ENUMERATIONS

LEVELS = ("guide", "today")
# In ``when``, these say that the argument provably points at a constant 1 or 0.
ONE = "one"
ZERO = "zero"
HELPER_PREFIX = "dualdnnPort"


@dataclass(frozen=True)
class Form:
    """Says how one function of cuDNN is ported when it is called with ``parameters``."""

    cudnn: str
    row: int | None  # This is the row of the guide's table; None where the form combines others.
    parameters: tuple[str, ...]
    miopen: str | None = None
    arguments: tuple[str, ...] = ()  # Each parameter of MIOpen gets a parameter of cuDNN, or "=" and a constant.
    drop: frozenset[str] = frozenset()
    when: Mapping[str, Any] = field(default_factory=dict)
    refuse: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    helper: str | None = None
    why: str = ""

    @property
    def is_rename(self) -> bool:
        """Return whether the MIOpen function takes the same arguments in the same order, whatever they are."""
        return self.miopen is not None and self.arguments == self.parameters and not (self.when or self.refuse)

    @property
    def rule(self) -> str:
        """Return the text that reports cite."""
        return f"guide/row{self.row:02}" if self.row else "helper" if self.helper else "today"


@dataclass(frozen=True)
class Table:
    """Holds everything that the rewriting looks up, for one level of MIOpen."""

    forms: Mapping[str, tuple[Form, ...]]
    types: Mapping[str, str]
    enumerators: Mapping[str, str | None]
    kept: frozenset[str]
    today: Mapping[str, str]  # function without a form -> its counterpart in MIOpen of today, in words

    @cached_property
    def changed_zeros(self) -> Mapping[str, str]:
        """Return each enumeration type whose 0 is another enumerator in MIOpen, with cuDNN's enumerator of 0."""
        header = resources.files(__package__).joinpath("dualdnn_port_miopen.h").read_text("utf-8")
        numbered = {member.name: int(member) for kind in MIOPEN_ENUMERATIONS.values() for member in kind}
        numbered |= {name: number for members in today()["enumerations"].values() for name, number in members.items()}
        numbered |= {name: int(number) for name, number in re.findall(r"\b(DUALDNN_PORT_\w+) = (\d+)", header)}
        zeros = {kind: member.name for kind in self.types for member in ENUMERATIONS.get(kind, ()) if member == 0}
        return {kind: name for kind, name in zeros.items() if numbered.get(self.enumerators.get(name) or "") != 0}

    def target_of_name(self, name: str) -> str | None:
        """Return the target of a function that is named without arguments: a pointer to it, the body of a macro."""
        form = self.forms[name][0]
        return form.miopen if form.is_rename else form.helper

    def knows(self, name: str) -> bool:
        """Return whether the name belongs to the documents: function, type, enumerator, version macro."""
        return (
            name in self.forms
            or name in self.types
            or name in self.enumerators
            or name in self.kept
            or name in documented()
        )


@cache
def documented() -> frozenset[str]:
    """Return all names of the cuDNN 8.0.3 document."""
    members = (member for kind in ENUMERATIONS.values() for member in kind.__members__)
    handles = {p.base_type for f in cudnn_functions().values() for p in f.parameters if p.base_type.startswith("cudnn")}
    return frozenset(cudnn_functions()) | frozenset(ENUMERATIONS) | frozenset(members) | handles


@cache
def table(level: str = "guide") -> Table:
    """Return the table for one level of MIOpen: the calls of the guide, or also today's."""
    return _table(level)


def _table(level: str) -> Table:
    if level not in LEVELS:
        raise ValueError(f"--miopen-level is {level!r}, not one of {', '.join(LEVELS)}")
    data = _data()
    forms = {name: tuple(_form(name, entry) for entry in entries) for name, entries in data["forms"].items()}
    types, enumerators, newer = data["types"], data["enumerators"], today()
    if level == "today":
        for name, entry in newer["functions"].items():
            older = forms.get(name, ())
            entry = {"row": older[0].row if older else None, "why": older[0].why if older else "", **entry}
            forms[name] = (_form(name, entry), *older[1:])
        types, enumerators = types | newer["types"], enumerators | newer["enumerators"]
    hints = {name: f"MIOpen has {entry['miopen']} today" for name, entry in newer["functions"].items()}
    hints |= {name: f"MIOpen has {target} today, but {reason}" for name, (target, reason) in newer["left"].items()}
    return Table(forms, types, enumerators, frozenset(data["kept"]), hints)


@cache
def today() -> dict[str, Any]:
    """Return the content of MIOpen's public header beyond the guide.

    It has functions with their signatures, types, enumerators, and ``left``: functions that only look like
    cuDNN's.
    """
    data: dict[str, Any] = json.loads(resources.files(__package__).joinpath("today.json").read_text("utf-8"))
    return data


def problems() -> Iterator[str]:
    """Return the mistakes of the table: lost parameters, unfilled ones, types that do not agree, missing helpers."""
    data, helpers = _data(), helper_parameters()
    for level in LEVELS:
        known = _table(level)
        for form in (form for many in known.forms.values() for form in many):
            yield from _problems(form, known.types, helpers)
    for name in miopen_functions():
        inserted = name.endswith("GetWorkSpaceSize") or name in _HELPERS_CALL
        if not inserted and not any(e.get("miopen") == name for es in data["forms"].values() for e in es):
            yield f"no form leads to {name}"


# Only helpers call these: see dualdnn_port_miopen.h.
_HELPERS_CALL = frozenset(
    {
        "miopenDestroy", "miopenOpTensor", "miopenSetActivationDescriptor", "miopenGetActivationDescriptor",
        "miopenGet2dPoolingDescriptor", "miopenGetLRNDescriptor", "miopenPoolingBackward", "miopenLRNBackward",
        "miopenConvolutionForward", "miopenConvolutionBackwardData", "miopenConvolutionBackwardWeights",
        "miopenFindConvolutionForwardAlgorithm", "miopenFindConvolutionBackwardDataAlgorithm",
        "miopenFindConvolutionBackwardWeightsAlgorithm", "miopenBatchNormalizationForwardTraining",
        "miopenBatchNormalizationForwardInference", "miopenBatchNormalizationBackward",
    }
)  # fmt: skip


def _problems(form: Form, types: Mapping[str, str], helpers: Mapping[str, int]) -> Iterator[str]:
    used = {argument for argument in form.arguments if not argument.startswith("=")}
    if form.miopen:
        lost = set(form.parameters) - used - form.drop
        if lost or used - set(form.parameters):
            yield f"{form.cudnn}: lost {sorted(lost)}, invented {sorted(used - set(form.parameters))}"
        yield from _type_problems(form, types)
    named = {*form.when, *form.refuse, *form.notes}
    if not named <= set(form.parameters):
        yield f"{form.cudnn}: conditions on {sorted(named - set(form.parameters))}"
    if form.when and not form.helper:
        yield f"{form.cudnn}: has conditions and no helper"
    if form.helper and helpers.get(form.helper) != len(form.parameters):
        yield f"{form.helper} has {helpers.get(form.helper)} parameters, {form.cudnn} {len(form.parameters)}"


def _type_problems(form: Form, types: Mapping[str, str]) -> Iterator[str]:
    if form.cudnn not in cudnn_functions() or not form.miopen:
        return
    ours = {p.name: p.ctype for p in cudnn_functions()[form.cudnn].parameters}
    wanted = _parameters(form.cudnn, form.miopen)
    if len(wanted) != len(form.arguments):
        yield f"{form.miopen} has {len(wanted)} parameters, the form of {form.cudnn} fills {len(form.arguments)}"
    for (ctype, name), argument in zip(wanted, form.arguments, strict=False):
        if argument in ours and _plain(ours[argument], types) != _plain(ctype, types):
            yield f"{form.cudnn}: {argument} is {ours[argument]}, {name} of {form.miopen} is {ctype}"


def _parameters(name: str, target: str) -> list[tuple[str, str]]:
    """Return the (type, name) of each parameter of a function of MIOpen, of the guide or of today."""
    if target in miopen_functions():
        return [(p.ctype, p.name) for p in miopen_functions()[target].parameters]
    declared = (
        parameter.replace("*", "* ").rsplit(None, 1) for parameter in today()["functions"][name]["signature"].split(",")
    )
    return [(ctype.strip(), name) for ctype, name in declared]


_SAME_TYPES = {"cudaStream_t": "miopenAcceleratorQueue_t"}


def _plain(ctype: str, types: Mapping[str, str]) -> str:
    """Return the type without const and spaces, in MIOpen's names."""
    bare = ctype.replace("const", "").replace(" ", "").replace("[]", "*")
    base, stars = bare.rstrip("*"), "*" * bare.count("*")
    return _SAME_TYPES.get(base, types.get(base, base)) + stars


def helper_parameters() -> dict[str, int]:
    """Return the number of parameters of each helper of the C header, those that its macro makes among them."""
    text = resources.files(__package__).joinpath("dualdnn_port_miopen.h").read_text("utf-8").replace("\\\n", " ")
    found = {}
    for name, parameters in re.findall(r"static\s+inline\s+[\w\s]+?[\s*]+(dualdnnPort[\w#]+)\(([^)]*)\)", text):
        count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
        for direction in ("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardFilter"):
            found[name.replace("##NAME##", direction).replace("##NAME", direction)] = count
    return found


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(resources.files(__package__).joinpath("forms.json").read_text("utf-8"))
    return data


def _form(name: str, entry: Mapping[str, Any]) -> Form:
    parameters = entry.get("parameters") or [p.name for p in cudnn_functions()[name].parameters]
    arguments = []
    if entry.get("miopen"):
        given, constants = entry.get("from", {}), entry.get("constant", {})
        for _, parameter in _parameters(name, entry["miopen"]):
            constant = constants.get(parameter)
            arguments.append("=" + constant if constant is not None else given.get(parameter, parameter))
    return Form(
        name, entry["row"], tuple(parameters), entry.get("miopen"), tuple(arguments), frozenset(entry.get("drop", ())),
        entry.get("when", {}), entry.get("refuse", {}), entry.get("notes", {}),
        HELPER_PREFIX + name.removeprefix("cudnn") if entry.get("helper") else None, entry.get("why", ""),
    )  # fmt: skip
