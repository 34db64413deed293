"""Repeat the calls of an API log (cuDNN's or ours) with seeded data, and judge them: ``dualdnn replay LOG``.

A log says which function was called with which descriptors, numbers and addresses, but not the contents of memory.
Computing calls become operations, which any subject runs on seeded inputs. Calls that set descriptors are checked
against the document. Calls that cannot be repeated are skipped, with line and reason: truncated calls, foreign lines,
values that a log lacks.
"""

from __future__ import annotations

import ast
import codecs
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from dualdnn.api import cudnn
from dualdnn.api.descriptors import DESCRIPTORS, Descriptor
from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.handle import Handle
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionSpec,
    CTCLossSpec,
    FilterSpec,
    LRNSpec,
    Operation,
    OpTensorSpec,
    PoolingSpec,
    ReduceTensorSpec,
    TensorSpec,
    TransformSpec,
    parse,
)
from dualdnn.api.operations.specs import vector_length
from dualdnn.api.status import CudnnError

from ..calls import Caller, sized
from ..calls.descriptors import made as made_by
from ..programs.observer import AMPLE, Memory, Seen, Shadow
from ..subjects import open_subject
from ..trial import attempt
from .log_forms import (
    ANY_HEADER,
    ARGUMENT,
    BEHIND,
    CHANGING,
    COUNTED,
    ENTRIES,
    HEADER,
    LACKING,
    LOCATION,
    MARK,
    MESSAGES,
    NULLS,
    NUMBERED,
    ORIGIN,
    RANGES,
    RENAMED,
    WIDEST,
    is_known,
    is_read,
    plain,
    release_of,
)

FOREIGN_SHOWN = 5
MAX_BYTES = 1 << 28  # bytes of the operands of a repeated call
LOOK = "location"  # kind of an argument: the log has the location of a value, not the value
ENUMERATOR_NUMBERS = {
    member.name: (kind, int(member)) for kind, members in ENUMERATIONS.items() for member in members
}  # name -> (type, number); other releases add names
MAX_LINE = 1 << 16  # characters of a line; longer lines are not from a log


@dataclass
class Logged:
    """Hold one call of a log.

    arguments: name -> (type, value). The value of a descriptor is a dictionary of its fields, or the text of a
    specification. problem: why the call cannot be repeated.
    """

    line: int
    function: str
    arguments: dict[str, tuple[str, Any]] = field(default_factory=dict)
    complete: bool = False
    problem: str = ""

    def takes(self, text: str, depth: int) -> bool:
        """Add a line to the call, or to a descriptor as its last argument.

        Return False for a line of something else.
        """
        _, last = list(self.arguments.values())[-1] if self.arguments else ("", None)
        into = last if depth > 4 and isinstance(last, dict) else self.arguments
        told: tuple[str, Any]
        if match := LOCATION.fullmatch(text):
            name, told = match[1], (LOOK, (match[2], match[3]))
        elif match := ARGUMENT.fullmatch(text):
            name, told = match[1] or f"argument {len(into) + 1}", (match[2], {} if match[3] is None else match[3])
        else:
            return False
        if into.get(name, told) != told:
            self.problem = f"lines of two calls are mixed: {name} is there twice"
        into[name] = told
        return True

    @property
    def computes(self) -> bool:
        """Return whether the call works on memory of the device, as an unknown function may."""
        return self.function not in functions() or any(
            p.memory == "device" for p in functions()[self.function].parameters
        )

    @property
    def passed_over(self) -> bool:
        """Return whether the call neither sets anything nor computes: creation, destruction, queries."""
        parameters = functions()[self.function].parameters
        sets = self.function.startswith("cudnnSet") and any(p.base_type in DESCRIPTORS for p in parameters)
        return not sets and not self.computes

    def __str__(self) -> str:
        return f"line {self.line}: {self.function}"


@dataclass(frozen=True)
class Asked:
    """Hold an operation, and pairs of operands with the same memory: (operand, the first that has it)."""

    operation: Operation
    aliases: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, operation: Operation, operands: Mapping[str, Any]) -> Asked:
        first: dict[int, str] = {}
        aliases = []
        for name, operand in operands.items():
            if operand is None or (name in operation.raw and name not in (*operation.inputs, *operation.outputs)):
                continue
            if first.setdefault(operand.address, name) != name:
                aliases.append((name, first[operand.address]))
        return cls(operation, tuple(aliases))

    @property
    def obstacle(self) -> str:
        """Return why seeded data cannot replace the program's memory; empty if it can."""
        o = self.operation
        for name in o.raw:
            if name in o.inputs and not isinstance(getattr(o, o.raw[name]), TensorSpec):
                return f"{name} holds what an earlier call has kept there"
        size = sum(o.nbytes(name) for name in o.operands)
        return f"its operands have {size} bytes, more than {MAX_BYTES}" if size > MAX_BYTES else ""


@dataclass
class Log:
    """Hold the calls of a log, and the lines that belong to no call."""

    calls: list[Logged]
    foreign: list[tuple[int, str]]
    releases: Mapping[str, int] = field(default_factory=dict)  # release -> version number in the headers
    messages: int = 0  # number of errors and warnings, which have the header of a call


def read_log(lines: Iterable[str]) -> Log:
    """Read the lines of a log. Other text may come between calls, and lines of several processes may be mixed."""
    calls: list[Logged] = []
    foreign: list[tuple[int, str]] = []
    open_calls: dict[str, Logged] = {}  # process, as the line names it -> its last call
    last = ""
    releases: dict[str, int] = {}
    messages = 0
    for number, line in enumerate(lines, 1):
        line = plain(line.rstrip("\n\r")) if len(line) < MAX_LINE else line
        marked = MARK.match(line) if len(line) < MAX_LINE else None
        text = line[marked.end() :] if marked else line[:MAX_LINE]
        if not text.strip(" >#*|"):
            continue
        depth = len(text) - len(text.lstrip())
        named = ORIGIN.search(line, 0, marked.start(1)) if marked else None
        origin = named[0] if named else ""
        found = HEADER.search(text)
        if found:
            if not is_read(int(found[1])):
                raise UnknownRelease(release_of(int(found[1])))
            releases[release_of(int(found[1]))] = int(found[1])
            function = RENAMED.get(found[2], found[2])
            last, current = origin, Logged(number, function)
            open_calls[origin] = current
            if marked and marked[1] in MESSAGES:
                messages += 1
            else:
                calls.append(current)
            continue
        call = open_calls.get(origin) or open_calls.get(last)  # A number before a line may only count the lines.
        if call is not None and BEHIND.match(text):
            call.complete = True
        elif call is None or call.complete or depth == 0 or not call.takes(text.strip(), depth):
            foreign.append((number, text))
    for call in calls:
        if not call.complete:
            call.problem = "the log breaks off"
    return Log(calls, foreign, releases, messages)


class UnknownRelease(ValueError):
    """Report a log of a release whose logs cannot be read."""

    def __init__(self, release: str) -> None:
        super().__init__(f"a log of cuDNN {release}, whose form is not known: those of releases 7, 8 and 9 are read")


class Unreadable(Exception):
    """Say why a call of a log cannot be repeated."""


def _number(text: str, kind: str = "") -> Any:
    """Return a number, or several; for an enumerator or flags, the number after their names.

    kind: the C type of each number.
    """
    value = _any_number(text)
    least, greatest = RANGES.get(kind.strip(), WIDEST)
    for each in value if isinstance(value, tuple) else (value,):
        if kind.strip() in RANGES and not isinstance(each, int):
            raise Unreadable(f"{_shown(text)} is not a whole number")
        if isinstance(each, int) and not least <= each <= greatest:
            raise Unreadable(f"{_shown(text)} is beyond the numbers of its type")
    return value


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:20]!r}... ({len(text)} characters)"


def _any_number(text: str) -> Any:
    if match := NUMBERED.fullmatch(text):
        text = match[1]
    words = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "-nan": math.nan}
    if text in words:
        return words[text]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        value = None
    found = tuple(value) if isinstance(value, list) else value
    if not {type(each) for each in (found if isinstance(found, tuple) else (found,))} <= {int, float}:
        raise Unreadable(f"{_shown(text)} is not a number")
    return found


def _enumerator(kind: str, text: str) -> Any:
    """Return an enumerator by its number, which follows its name or is alone, or by its name."""
    if ENUMERATOR_NUMBERS.get(text, ("", 0))[0] == kind:
        return ENUMERATOR_NUMBERS[text][1]
    if not (NUMBERED.fullmatch(text) or re.fullmatch(r"-?\d+", text)):
        raise Unreadable(f"{_shown(text)} is not an enumerator of {kind}")
    number, name = _number(text, "int"), text.partition(" ")[0]
    meant = ENUMERATOR_NUMBERS.get(name)
    if meant is not None and meant != (kind, number):
        raise Unreadable(
            f"{_shown(text)} contradicts itself: {name} is {meant[1]} of {meant[0]}, not {number} of {kind}"
        )
    return number


class Fields:
    """Hold the fields of a descriptor as cuDNN logs them."""

    def __init__(self, kind: str, fields: Mapping[str, tuple[str, Any]]) -> None:
        self.kind, self.fields = kind, fields

    def text(self, name: str) -> str:
        if name not in self.fields or not isinstance(self.fields[name][1], str):
            raise Unreadable(f"a {self.kind} without {name}")
        return self.fields[name][1]

    def number(self, name: str) -> Any:
        return _number(self.text(name), self.fields[name][0])

    def numbers(self, name: str, count: int | None = None) -> tuple[int, ...]:
        """Return the numbers of an array, at most ``count`` of them. Raises ``Unreadable`` if it has fewer."""
        found = self.number(name)
        all_ = found if isinstance(found, tuple) else (found,)
        if count is not None and len(all_) < count:
            raise Unreadable(f"a {self.kind} with {len(all_)} of {count} entries of {name}")
        return all_[:count]

    @property
    def rank(self) -> int | None:
        """Return the number of dimensions, or None in a log without it."""
        return int(self.number("nbDims")) if "nbDims" in self.fields else None

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return numbers that are all at least 1, as every descriptor has them."""
        found = self.numbers(name, self.rank)
        if min(found, default=0) < 1:
            raise Unreadable(f"a {self.kind} with {name} {_shown(self.text(name))}")
        return found

    def member(self, name: str, kind: str) -> Any:
        """Return an enumerator of a type."""
        try:
            return ENUMERATIONS[kind](_enumerator(kind, self.text(name)))
        except ValueError:
            raise Unreadable(f"{self.text(name)} is not an enumerator of {kind}") from None


def _tensor(f: Fields, _rank: int) -> TensorSpec:
    return TensorSpec(
        f.member("dataType", "cudnnDataType_t"), (dims := f.sizes("dimA")), f.numbers("strideA", len(dims))
    )


def _filter(f: Fields, _rank: int) -> FilterSpec:
    """Return the specification; a log counts the channels of a vectorised filter in vectors."""
    data_type, (outputs, inputs, *spatial) = f.member("dataType", "cudnnDataType_t"), f.sizes("dimA")
    dims = (outputs, inputs * vector_length(data_type), *spatial)
    return FilterSpec(data_type, f.member("format", "cudnnTensorFormat_t"), dims)


def _convolution(f: Fields, _rank: int) -> ConvolutionSpec:
    rank = f.number("arrayLength")
    return ConvolutionSpec(
        f.member("mode", "cudnnConvolutionMode_t"), f.member("dataType", "cudnnDataType_t"), f.numbers("padA", rank),
        f.numbers("strideA", rank), f.numbers("dilationA", rank), f.number("groupCount"), f.member("mathType", "cudnnMathType_t"),
        f.member("reorderType", "cudnnReorderType_t"),
    )  # fmt: skip


def _pooling(f: Fields, _rank: int) -> PoolingSpec:
    rank = f.number("nbDims")
    sizes = (f.numbers(name, rank) for name in ("windowDimA", "paddingA", "strideA"))
    return PoolingSpec(
        f.member("mode", "cudnnPoolingMode_t"), f.member("maxpoolingNanOpt", "cudnnNanPropagation_t"), *sizes
    )


def _transform(f: Fields, rank: int) -> TransformSpec:
    """Return the specification. The log has eight dimensions; the call's tensors say how many count."""
    return TransformSpec(
        f.member("destFormat", "cudnnTensorFormat_t"), f.numbers("padBeforeA", rank), f.numbers("padAfterA", rank),
        f.numbers("foldA", rank - 2), f.member("direction", "cudnnFoldingDirection_t"),
    )  # fmt: skip


def _activation(f: Fields, _rank: int) -> ActivationSpec:
    return ActivationSpec(
        f.member("mode", "cudnnActivationMode_t"),
        f.member("reluNanOpt", "cudnnNanPropagation_t"),
        float(f.number("coef")),
    )


def _lrn(f: Fields, _rank: int) -> LRNSpec:
    return LRNSpec(f.number("lrnN"), *(float(f.number(name)) for name in ("lrnAlpha", "lrnBeta", "lrnK")))


def _op_tensor(f: Fields, _rank: int) -> OpTensorSpec:
    return OpTensorSpec(
        f.member("op", "cudnnOpTensorOp_t"),
        f.member("compType", "cudnnDataType_t"),
        f.member("nanOpt", "cudnnNanPropagation_t"),
    )


def _reduce_tensor(f: Fields, _rank: int) -> ReduceTensorSpec:
    return ReduceTensorSpec(
        f.member("op", "cudnnReduceTensorOp_t"), f.member("compType", "cudnnDataType_t"), f.member("nanOpt", "cudnnNanPropagation_t"),
        f.member("indices", "cudnnReduceTensorIndices_t"), f.member("indicesType", "cudnnIndicesType_t"),
    )  # fmt: skip


def _ctc_loss(f: Fields, _rank: int) -> CTCLossSpec:
    return CTCLossSpec(
        f.member("compType", "cudnnDataType_t"), f.member("normMode", "cudnnLossNormalizationMode_t"),
        f.member("gradMode", "cudnnNanPropagation_t"), f.number("maxLabelLength") if "maxLabelLength" in f.fields else None,
    )  # fmt: skip


# type of a descriptor -> function of (logged fields, rank of the call's tensors) that returns its specification
DESCRIBED: dict[str, Callable[[Fields, int], Any]] = {
    "cudnnTensorDescriptor_t": _tensor,
    "cudnnFilterDescriptor_t": _filter,
    "cudnnConvolutionDescriptor_t": _convolution,
    "cudnnPoolingDescriptor_t": _pooling,
    "cudnnTensorTransformDescriptor_t": _transform,
    "cudnnActivationDescriptor_t": _activation,
    "cudnnLRNDescriptor_t": _lrn,
    "cudnnOpTensorDescriptor_t": _op_tensor,
    "cudnnReduceTensorDescriptor_t": _reduce_tensor,
    "cudnnCTCLossDescriptor_t": _ctc_loss,
}


class Reader:
    """Make the calls of a log on our documented functions, which tell what they ask of a backend."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.shadow = Shadow(self.memory)
        self.handle = Handle(self.shadow)
        self.made: dict[str, Descriptor] = {}  # by the address in the log; also by type, for the last one that was set

    def __call__(self, call: Logged) -> Asked | None:
        """Return what the call asks for, None if it computes nothing.

        Raises ``Unreadable`` if it cannot be made, ``CudnnError`` if the document refuses it.
        """
        if call.problem:
            raise Unreadable(call.problem)
        if call.function not in functions():
            raise Unreadable("no function of the document")
        body = getattr(cudnn, call.function, None)
        if body is None:
            raise Unreadable("not implemented")
        if call.passed_over:
            return None
        self.shadow.asked = None
        body(*self._arguments(call))
        return Asked.of(*self.shadow.asked) if self.shadow.asked else None

    def _arguments(self, call: Logged) -> list[Any]:
        documented = functions()[call.function].arguments
        parameters, given = self._logged(call, documented), list(call.arguments.items())
        target = self._target(call, documented)
        ranks = [
            len(Fields("", value).numbers("dimA"))
            for _, (_, value) in given
            if isinstance(value, dict) and "dimA" in value and isinstance(value["dimA"][1], str)
        ]
        values = {
            parameter.name: self._value(parameter, logged, max(ranks, default=0))
            for parameter, logged in zip(parameters, given, strict=True)
            if parameter != target or logged[1][0] != LOOK
        }
        for name in LACKING.get(call.function, ()):
            if name not in values and COUNTED.get(name) in values:
                values[name] = len(values[COUNTED[name]])
            elif name not in values:
                raise Unreadable(f"the log does not have {name}")
        self._cut(call.function, values)
        if target and target.name not in values:
            values[target.name] = self._found(call, target, given, parameters)
        elif target and values[target.name] is not None:
            self.made[target.base_type] = values[target.name]
        return [values[p.name] if p.name in values else DESCRIPTORS[p.base_type]() for p in documented]

    @staticmethod
    def _logged(call: Logged, documented: Sequence[Parameter]) -> list[Parameter]:
        """Return the parameters that the log has. cuDNN leaves out those that a call fills or sets, and some others."""
        target = Reader._target(call, documented)
        filled = {p.name for p in documented if p.base_type in DESCRIPTORS and (p.direction != "in" or p == target)}
        if target and [kind for kind, _ in call.arguments.values()][documented.index(target) :][:1] in (
            [LOOK],
            [target.base_type],
        ):
            filled.discard(target.name)
        lacking = set(LACKING.get(call.function, ()))
        for left_out in (set(), filled, lacking, filled | lacking):
            if len(call.arguments) == len(documented) - len(left_out):
                return [p for p in documented if p.name not in left_out]
        raise Unreadable(f"the log has {len(call.arguments)} arguments, the document {len(documented)}")

    @staticmethod
    def _target(call: Logged, documented: Sequence[Parameter]) -> Parameter | None:
        """Return the descriptor that a setter sets."""
        kinds = (p for p in documented if p.base_type in DESCRIPTORS)
        return next(kinds, None) if call.function.startswith("cudnnSet") else None

    @staticmethod
    def _cut(function: str, values: dict[str, Any]) -> None:
        """Cut arrays to the entries that count; further entries are a fault of the log's release."""
        arrays, size = ENTRIES.get(function, ((), ""))
        for name in arrays:
            array, count = values.get(name), values.get(size)
            if not isinstance(array, tuple) or not isinstance(count, int) or count < 0:
                continue
            if len(array) < count:
                raise Unreadable(f"the log has {len(array)} of {count} entries of {name}")
            values[name] = array[:count]

    def _found(
        self, call: Logged, target: Parameter, given: Sequence[Any], parameters: Sequence[Parameter]
    ) -> Descriptor:
        """Return the descriptor that a setter sets: a new one, the one with its address, or the last of its type."""
        addresses = [
            value for p, (_, (kind, value)) in zip(parameters, given, strict=True) if p == target and kind == LOOK
        ]
        if addresses and addresses[0][1] in NULLS:
            return None  # type: ignore[return-value]
        key = addresses[0][1] if addresses else target.base_type
        if call.function not in CHANGING:
            self.made[key] = self.made[target.base_type] = DESCRIPTORS[target.base_type]()
        elif key not in self.made:
            raise Unreadable(f"the log does not have the {target.base_type} that is changed")
        return self.made[key]

    def _value(self, parameter: Parameter, logged: tuple[str, tuple[str, Any]], rank: int) -> Any:
        name, (kind, value) = logged
        base = parameter.base_type
        if base == "cudnnHandle_t":
            return self.handle
        if parameter.memory == "device":
            return self._memory(parameter, name, kind, value)
        if base == "size_t" and "workspace" in parameter.name.lower():
            return AMPLE
        if kind == LOOK and value[1] in NULLS:
            return None
        if kind == LOOK and base in DESCRIPTORS and parameter.direction != "in":
            return DESCRIPTORS[base]()  # The call fills this descriptor.
        if kind == LOOK:
            raise Unreadable(f"{name} is not in the log, only its address")
        if value in ("NULL_PTR", "NULL"):
            return None
        if base in DESCRIPTORS:
            return self._descriptor(base, name, kind, value, rank)
        if isinstance(value, dict):
            raise Unreadable(f"{name} is a {kind}, the document has {parameter.ctype}")
        if base in ENUMERATIONS and not parameter.is_pointer:
            return _enumerator(base, str(value))
        if base in ENUMERATIONS:
            names = {key: member for member in ENUMERATIONS[base] for key in (member.name, str(int(member)))}
            return tuple(
                names.get(word.strip("<> ").split(":")[0].split(".")[-1], word)
                for word in value.strip("()[]").split(",")
            )
        try:
            return _number(value, kind)
        except Unreadable as reason:
            raise Unreadable(f"{name}, a {kind}, cannot be read: {reason}") from None

    def _memory(self, parameter: Parameter, name: str, kind: str, value: Any) -> Any:
        if kind != LOOK:
            raise Unreadable(f"{name} is a {kind}, the document has device memory")
        place, address = value
        if place == "host":
            return None if address in ("NULL", "NULL_PTR") else self._somewhere(parameter, address)
        return None if address in ("NULL", "NULL_PTR", "None") else self._somewhere(parameter, address)

    def _somewhere(self, parameter: Parameter, address: str) -> Any:
        try:
            found = int(address, 0)
        except ValueError:
            raise Unreadable(f"{parameter.name} is at {address}, which is not an address") from None
        if parameter.name.lower() == "workspace":
            return Seen(self.memory, 1 << 20)
        return Seen(self.memory, found) if found else None

    def _descriptor(self, base: str, name: str, kind: str, value: Any, rank: int) -> Descriptor:
        if kind != base:
            raise Unreadable(f"{name} is a {kind}, the document has a {base}")
        made = DESCRIPTORS[base]()
        if isinstance(value, dict):
            if base not in DESCRIBED:
                raise Unreadable(f"{name}: what cuDNN logs of a {base} cannot be read")
            made.spec = DESCRIBED[base](Fields(base, value), rank)
            try:
                made_by(cudnn, made.spec)
            except CudnnError as error:  # No program has such a descriptor: the log is at fault.
                raise Unreadable(f"{name}: {error}") from None
        elif value != "None":
            try:
                made.spec = parse(value)
            except (ValueError, AttributeError):
                raise Unreadable(f"{name}, a {kind}, cannot be read") from None
        return made


@dataclass
class Summary:
    """Hold the results of a log's calls."""

    asked: dict[Asked, list[Logged]] = field(default_factory=dict)
    settings: int = 0
    passed_over: int = 0
    refused: dict[tuple[str, str], list[Logged]] = field(
        default_factory=dict
    )  # (function, the document's reason) -> calls
    skipped: dict[tuple[str, str], list[Logged]] = field(default_factory=dict)

    def lines(self, log: Log) -> Iterator[str]:
        """Yield lines on the contents of the log, and on the calls that are left out."""
        computing = sum(map(len, self.asked.values()))
        yield (
            f"{len(log.calls)} calls: {computing} compute, {len(self.asked)} different ones; {self.settings} set descriptors; "
            f"{self.passed_over} make, destroy or ask"
        )
        if log.releases:
            yield f"a log of cuDNN {', '.join(log.releases)}"
        if later := [release for release, version in log.releases.items() if not is_known(version)]:
            yield f"cuDNN {', '.join(later)} is later than the last release whose logs are known: they are read by its forms"
        if log.messages:
            yield f"{log.messages} messages of errors and warnings are left out"
        for what, found in (("refused by the document", self.refused), ("skipped", self.skipped)):
            for (function, reason), calls in found.items():
                more = f" ({len(calls)} calls)" if len(calls) > 1 else ""
                yield f"{what}: line {calls[0].line}: {function}: {reason.removeprefix(f'{function}: ')}{more}"
        if log.foreign:
            yield f"{len(log.foreign)} lines are none of a log's:"
            yield from (f"  line {number}: {text[:120]}" for number, text in log.foreign[:FOREIGN_SHOWN])


def summarized(log: Log) -> Summary:
    """Return the distinct operations that the calls of a log ask for."""
    read, found = Reader(), Summary()
    for call in log.calls:
        try:
            asked = read(call)
            if asked is not None and asked.obstacle:
                raise Unreadable(asked.obstacle)
        except CudnnError as error:
            found.refused.setdefault((call.function, str(error)), []).append(call)
        except Unreadable as reason:
            found.skipped.setdefault((call.function, str(reason)), []).append(call)
        except Exception as error:  # A log can contain anything.
            found.skipped.setdefault((call.function, f"{type(error).__name__}: {error}"[:300]), []).append(call)
        else:
            if asked is not None:
                found.asked.setdefault(asked, []).append(call)
            elif call.passed_over:
                found.passed_over += 1
            else:
                found.settings += 1
    return found


def opened_log(path: Path) -> TextIO:
    """Open a log as text, whatever it contains. PowerShell writes UTF-16 with a byte order mark."""
    with open(path, "rb") as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return open(path, encoding="utf-16" if wide else "utf-8", errors="replace")


def lines_of(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file, longer ones in parts."""
    while line := file.readline(2 * MAX_LINE):
        yield line


def is_log(path: Path) -> bool:
    """Return whether a file is text with a call of a log. Raises ``ValueError`` for headers of another form."""
    other = ""
    with opened_log(path) as file:
        for line in lines_of(file):
            if HEADER.search(line := plain(line)):
                return True
            if not other and (found := ANY_HEADER.search(line)):
                other = found[1]
    number = other.partition(" ")[0]
    if number.isdigit() and is_read(int(number)):
        raise ValueError(f"a log of cuDNN {release_of(int(number))} without a whole line that names a call")
    if other:
        raise UnknownRelease(other)
    return False


def judge_log(lines: Iterable[str], subjects: Iterable[str], inputs: str, seed: int) -> int:
    """Make the calls of a log on each subject, print the results, and return how many failed.

    Raises ``ValueError`` if none can be judged.
    """
    log = read_log(lines)
    found = summarized(log)
    print(*found.lines(log), sep="\n", flush=True)
    left_out = chain.from_iterable([*found.refused.values(), *found.skipped.values()])
    if not found.asked and (not found.settings or any(call.computes for call in left_out)):
        settings = f", though {found.settings} set descriptors" if found.settings else ""
        raise ValueError(f"none of the {len(log.calls)} calls of the log could be judged{settings}")
    failures = 0
    for name in subjects:
        subject = open_subject(name)
        caller = Caller(subject.cudnn, subject.new_handle())
        failed = []
        for asked, calls in found.asked.items():
            try:
                result = attempt(caller, sized(caller, asked.operation), inputs, seed, dict(asked.aliases))
            except Exception as error:  # The subject failed, or this machine has too little memory.
                failed.append((calls, asked, f"{type(error).__name__}: {error}"))
                continue
            if not result.passed:
                failed.append((calls, asked, result.explanation()))
        print(f"{subject.name}: {len(found.asked) - len(failed)} of {len(found.asked)} operations passed")
        for calls, asked, why in failed:
            print(f"failed: {calls[0]}: {why}\n  {asked.operation}")
        failures += len(failed)
    return failures
