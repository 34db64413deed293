"""Make documented functions from their bodies: one mechanism for argument checks, logging and routing.

``documented`` wraps a host-side call, ``computing`` a call that runs an operation. Both check every argument against
the function table before the body sees it: NULL, type, destroyed or uninitialised descriptors, enumerators, integer
ranges. They check in the document's order and cite the clause that the body declares for the argument.

The body of a computing call receives *specifications* in place of descriptors. It checks what the document demands of
them and returns the operation. The wrapper caches the operation under the call's arguments, so a repeated call costs
one dictionary look-up. Checks that depend on memory (size, overlap) run on every call.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from . import api_log, releases
from .answers import FLOATS, HANDLE, INTEGERS, STREAM, quick, repeating, require_same, seen
from .descriptors import DESCRIPTORS, Descriptor
from .document import Parameter, functions
from .enumerations import ENUMERATIONS, cudnnStatus_t
from .handle import Handle
from .operations import BackendError, Operation, TensorSpec, Unsupported, replay
from .operations.answers import Answers
from .operations.operation import MemoryRequirement
from .status import (
    ALLOC_FAILED,
    BAD_PARAM,
    CHECKS,
    EXECUTION_FAILED,
    INCORRECT_PARAMETER,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    CudnnError,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {}
SCALARS = 2**31  # scalars per tensor, the exclusive limit for computing calls (docs/errata.md, D125)
STARTS_KEPT = 64  # memory of an operation's calls for which its launches are kept
Check = Callable[[Parameter, Any], Any]  # It returns the argument as the body gets it, or raises CudnnError.
Launch = Callable[[Handle, "_Prepared", list[Any]], None]


class Demand(NamedTuple):
    """State what a call requires of an operand's memory: its bytes, their alignment, whether the call writes them.

    parameter: names the memory in messages. position: the index of the argument; memory that a descriptor holds
    follows the last argument.
    """

    name: str
    parameter: str
    nbytes: int
    alignment: int
    writes: bool
    position: int


@dataclass(frozen=True)
class SameMemory:
    """Declare whether two operands may share memory: only where ``allowed(operation)`` is true; otherwise ``clause`` is
    violated.

    ``allowed`` None forbids any overlap. Partial overlap is always refused, because its result would depend on the
    order in which elements are computed.
    """

    first: str
    second: str
    clause: str
    status: cudnnStatus_t = BAD_PARAM
    allowed: Callable[[Any], bool] | None = None


class _Documented:
    """Check the arguments of one documented function."""

    def __init__(
        self,
        body: Callable[..., Any],
        invalid: Mapping[str, str | tuple[str, cudnnStatus_t]],
        fresh: Sequence[str] = (),
        unchecked: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        self.name = body.__name__
        self.function = functions()[self.name]
        self.parameters = self.function.arguments
        documented = [parameter.name for parameter in self.parameters]
        declared = list(inspect.signature(body).parameters)
        if declared != documented:
            raise TypeError(f"{self.name} is declared with {declared}, the document has {documented}")
        self.body = body
        self.invalid = invalid
        may_be_new = [p.name for p in self.parameters if p.direction != "in" or self.name.startswith("cudnnDestroy")]
        self.fresh = frozenset([*fresh, *may_be_new])
        self.unchecked = frozenset(unchecked)
        self.optional = frozenset(optional)
        self.checks = [(parameter, *self._checks_of(parameter)) for parameter in self.parameters]
        if unknown := self.optional - set(documented):
            raise TypeError(f"{self.name} has no parameters {sorted(unknown)}")

    def refuse(self, name: str, problem: str) -> CudnnError:
        """Return the error for an argument that is invalid by itself, or for memory that a descriptor holds."""
        declared = self.invalid.get(name) or self.invalid.get("*") or INCORRECT_PARAMETER
        clause, status = declared if isinstance(declared, tuple) else (declared, BAD_PARAM)
        clause = clause if "/" in clause else f"{self.name}/{clause}"
        return CudnnError(status, clause, f"{name} {problem}")

    @contextmanager
    def errors(self, failed: str) -> Iterator[None]:
        """Convert what a call raises within the block to the documented error.

        failed: the clause of work that the backend could not compute. Work that it does not serve has its own clause.
        """
        name = self.name
        try:
            yield
        except CudnnError as error:
            error.function = error.function or name
            raise
        except Unsupported as error:
            raise CudnnError(NOT_SUPPORTED, error.clause, str(error), name) from error
        except BackendError as error:
            api_log.log_fatal(self.function, str(error))
            raise CudnnError(EXECUTION_FAILED, failed, str(error), name) from error
        except MemoryError as error:
            text = str(error) or "the host has no memory left"
            raise CudnnError(ALLOC_FAILED, self.function.out_of_memory, text, name) from error

    def check(self, arguments: Sequence[Any]) -> list[Any]:
        """Return a call's arguments in the form that the body receives; raise CudnnError if one is invalid by itself."""
        checked = []
        for i, (parameter, check, null) in enumerate(self.checks):
            value = arguments[i]
            wanted = null if value is None else check
            checked.append(value if wanted is None else wanted(parameter, value))
        return checked

    def _checks_of(self, parameter: Parameter) -> tuple[Check | None, Check | None]:
        """Return the checks of a parameter's arguments and of NULL; None accepts everything."""
        base, is_array = parameter.base_type, parameter.is_pointer
        if parameter.name in self.unchecked:
            return None, None
        if base == HANDLE:
            return self._handle, self._handle
        check: Check | None = None
        if base in DESCRIPTORS:
            check = self._descriptors if is_array else self._descriptor
        elif parameter.memory == "device":
            check = None
        elif base in ENUMERATIONS:
            check = self._enumerators if is_array else self._enumerator
        elif base in INTEGERS:
            check = self._integers if is_array else self._integer
        elif base in FLOATS or (base == "void" and parameter.memory == "host" and parameter.name != "udata"):
            check = self._number
        is_optional = parameter.nullable or parameter.name in self.optional or base == STREAM
        return check, None if is_optional else self._null

    def _null(self, parameter: Parameter, _value: None) -> None:
        """Refuse a NULL, unless the emulated cuDNN release accepts it."""
        error = self.refuse(parameter.name, "is NULL")
        if not releases.serves(str(error.clause), error.message, {"argument": parameter.name}):
            raise error

    def _handle(self, parameter: Parameter, value: Any) -> Handle:
        if not isinstance(value, Handle):
            what = "is NULL" if value is None else f"is a {type(value).__name__}, not a handle of cudnnCreate"
            raise self.refuse(parameter.name, what)
        if not value.alive:
            raise CudnnError(NOT_INITIALIZED, "cudnnStatus_t/c03", f"{parameter.name} was destroyed by cudnnDestroy")
        return value

    def _descriptor(self, parameter: Parameter, value: Any) -> Descriptor:
        wanted = DESCRIPTORS[parameter.base_type]
        if type(value) is not wanted:
            raise self.refuse(parameter.name, f"is a {type(value).__name__}, not a {wanted.type_name}")
        if not value.alive:
            raise self.refuse(parameter.name, "was destroyed")
        if value.spec is None and parameter.name not in self.fresh:
            raise self.refuse(parameter.name, "has not been initialised")
        return value

    def _descriptors(self, parameter: Parameter, value: Any) -> tuple[Descriptor, ...]:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise self.refuse(parameter.name, f"is a {type(value).__name__}, not a sequence of descriptors")
        return tuple(self._descriptor(parameter, item) for item in value)

    def _enumerator(self, parameter: Parameter, value: Any) -> Any:
        enumeration = ENUMERATIONS[parameter.base_type]
        if type(value) is enumeration:
            return value
        try:
            if isinstance(value, Enum):
                raise TypeError("of another type")
            return enumeration(operator.index(value))
        except Exception:  # A foreign object may raise anything when it is converted.
            error = self.refuse(
                parameter.name, f"is {shown(value)}, which is not an enumerator of {enumeration.__name__}"
            )
            if (meant := releases.enumerator(str(error.clause), parameter.base_type, value)) is None:
                raise error from None
            return enumeration[meant]

    def _enumerators(self, parameter: Parameter, value: Any) -> tuple[Any, ...]:
        return tuple(self._enumerator(parameter, item) for item in self._sequence(parameter, value, "enumerators"))

    def _integer(self, parameter: Parameter, value: Any) -> int:
        lowest, highest = INTEGERS[parameter.base_type]
        try:
            number = operator.index(value)
        except Exception:
            raise self.refuse(parameter.name, f"is {shown(value)}, not an integer") from None
        if not lowest <= number <= highest:
            raise self.refuse(parameter.name, f"is {number}, outside the range of {parameter.base_type}")
        return number

    def _integers(self, parameter: Parameter, value: Any) -> tuple[int, ...]:
        return tuple(self._integer(parameter, item) for item in self._sequence(parameter, value, "integers"))

    def _sequence(self, parameter: Parameter, value: Any, of: str) -> list[Any]:
        if isinstance(value, (str, bytes)) or (
            not isinstance(value, (Sequence, Mapping)) and not hasattr(value, "__len__")
        ):
            raise self.refuse(parameter.name, f"is {shown(value)}, not a sequence of {of}")
        try:
            return list(value)
        except Exception:  # A 0-dimensional array has __len__ but no length.
            raise self.refuse(parameter.name, f"is {shown(value)}, not a sequence of {of}") from None

    def _number(self, parameter: Parameter, value: Any) -> float:
        try:
            return real_number(value)
        except Exception:
            raise self.refuse(parameter.name, f"is {shown(value)}, not a real number") from None


def real_number(value: Any) -> float:
    """Return an argument as a float; raise any exception if it is not a real number."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    # NumPy would convert these silently.
    if isinstance(value, (str, bytes, bytearray, Enum)) or (kind and kind in "cSUmM"):
        raise TypeError("of another type")
    return float(value)


def shown(value: Any) -> str:
    """Return the text of a wrong argument for an error message, at most about 200 characters, even if its ``repr``
    raises."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}... ({type(value).__name__})"


def documented(
    *,
    invalid: Mapping[str, str | tuple[str, cudnnStatus_t]] | None = None,
    fresh: Sequence[str] = (),
    unchecked: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a documented host-side call from its body.

    invalid: maps a parameter name (or "*" for all others) to the clause that an invalid argument violates. A status
    follows if it is not BAD_PARAM.
    fresh: names input descriptors that may be uninitialised.
    unchecked: names parameters that the body checks itself.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        checks = _Documented(body, invalid or {}, fresh, unchecked)

        def anew(*arguments: Any) -> Any:
            if api_log.active:
                api_log.log_call(checks.function, arguments)
            try:
                if not has_handle or not isinstance(handle := arguments[0], Handle):
                    return body(*checks.check(arguments))
                with handle.lock:
                    if not releases.in_use:
                        return body(*checks.check(arguments))
                    with releases.acting(handle.release):
                        return body(*checks.check(arguments))
            except Exception:
                with checks.errors("cudnnStatus_t/c08"):
                    raise

        has_handle = bool(checks.parameters) and checks.parameters[0].base_type == HANDLE
        call = functools.wraps(body)(repeating(checks.function, anew))
        call.checks = checks  # type: ignore[attr-defined]
        FUNCTIONS[checks.name] = call
        return call

    return decorate


def computing(
    *,
    invalid: Mapping[str, str | tuple[str, cudnnStatus_t]] | None = None,
    memory: Sequence[SameMemory] = (),
    failed: str = "cudnnStatus_t/c08",
    small: Mapping[str, tuple[str, cudnnStatus_t]] | None = None,
    optional: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
    fresh: Sequence[str] = (),
    runs: type[_Computing] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return a decorator that makes a documented computing call. Its body turns specifications and scalars into an
    operation.

    invalid: maps parameters to clauses, as in ``documented``.
    memory: lists the rules for operands that share memory.
    failed: the clause of CUDNN_STATUS_EXECUTION_FAILED; the default is the clause of cudnnStatus_t.
    small: maps an operand to the (clause, status) for a buffer that is too small, if the document names one.
    optional: names parameters that may be NULL although the function table does not say so. The body gets None for such
    a NULL, also for device memory.
    named: maps an operand to its parameter, if the call and the operation name it differently.
    fresh: names input descriptors that may be uninitialised.
    runs: the class that runs the call; None means _Computing.
    """

    def decorate(body: Callable[..., Any]) -> Callable[..., None]:
        checks = _Documented(body, invalid or {}, fresh, optional=optional)
        clause = failed if "/" in failed else f"{checks.name}/{failed}"
        made = (runs or _Computing)(checks, body, tuple(memory), clause, small or {})
        made.named = named or {}
        call = functools.wraps(body)(made.call)
        call.computing = made  # type: ignore[attr-defined]
        FUNCTIONS[checks.name] = call
        return call

    return decorate


def computing_of(name: str) -> _Computing | None:
    """Return the _Computing object of a function made by ``computing`` or ``executing``, or None for any other name."""
    return getattr(FUNCTIONS.get(name), "computing", None)


def executing(**declared: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return a decorator for calls like cudnnFusedOpsExecute, which run a plan on the memory that a parameter pack
    holds.

    The body returns the operation and its memory in operand order; the operation is None if there is nothing to do. The
    arguments are the arguments of ``computing``. The clause that ``invalid`` has for "*" applies to invalid memory.
    """
    return computing(runs=_Executing, **declared)


class _Computing:
    """Run one computing function: find the cached operation, check its memory, launch it."""

    named: Mapping[str, str] = MappingProxyType({})  # maps an operand to its parameter where their names differ

    def __init__(
        self,
        checks: _Documented,
        body: Callable[..., Any],
        memory: tuple[SameMemory, ...],
        failed: str,
        small: Mapping[str, tuple[str, cudnnStatus_t]],
    ) -> None:
        self.checks, self.body, self.memory, self.failed, self.small = checks, body, memory, failed, small
        parameters = checks.parameters
        self.count = len(parameters)
        self.device = tuple(i for i, p in enumerate(parameters) if p.memory == "device")
        self.described = tuple(i for i, p in enumerate(parameters) if p.base_type in DESCRIPTORS)
        self.key, self.call = quick(
            checks.function, lambda *args: self.run(args), self._answered(), None, self.held, checks.optional
        )
        self.position = {parameters[i].name: i for i in self.device}

    def _answered(self) -> list[str]:
        """Return the statements that launch ``found_`` on memory that passed the checks earlier; none for a pack's."""
        if not self.device:
            return []
        handle, names = self.checks.parameters[0].name, [self.checks.parameters[i].name for i in self.device]
        memory = "".join(f"{name} if {name} is None else find_({name}), " for name in names)
        held = ", ".join(p.name for p in self.checks.parameters)
        return [
            "if found_.starts:",
            f"    find_ = {handle}.backend.operand",
            f"    memory_ = ({memory})",
            "    if found_.held:",
            f"        memory_ += tuple([each if each is None else find_(each) for each in held_(({held},), found_.held)])",
            "    start_ = found_.starts.get(memory_)",
            "    if start_ is not None:",
            f"        return start_({handle}.stream)",
        ]

    def held(self, args: Any, operands: Sequence[str]) -> list[Any]:
        """Return the memory of operands that a descriptor of the call holds; None for memory that none holds."""
        holders = [args[i] for i in self.described if isinstance(args[i], Descriptor)]
        return [next((m for h in holders if (m := h.held(operand)) is not None), None) for operand in operands]

    def run(self, args: tuple[Any, ...], launch: Launch | None = None) -> None:
        """Run the cached operation for these arguments, or prepare a new one.

        launch: replaces the backend's launcher; it gets the call after all checks have passed.
        """
        if api_log.active:
            api_log.log_call(self.checks.function, args)
        try:
            prepared, given = self.found(args)
            handle = args[0]
            with handle.lock:
                if launch is None:
                    self._start(handle, prepared, given)(handle.stream)
                else:
                    launch(handle, prepared, self._operands(handle, prepared, given))
        except Exception:
            with self.checks.errors(self.failed):
                raise

    def found(self, args: tuple[Any, ...]) -> tuple[_Prepared, Sequence[Any]]:
        """Return the prepared operation of a call and the sequence that holds its operands' memory: the arguments."""
        key = prepared = None
        try:
            key = self.key(*args)
            prepared = args[0].answers.get(key)
        except Exception:  # The checks below name the wrong argument.
            pass
        if prepared is None or replay.compares:  # A destroyed handle also has no answers.
            earlier, prepared = prepared, self._prepare(args, key)
            if earlier is not None:
                require_same(earlier.operation, prepared.operation, self.checks.name)
        return prepared, (*args, *self.held(args, prepared.held)) if prepared.held else args

    def _prepare(self, args: tuple[Any, ...], key: Any) -> _Prepared:
        with releases.acting(getattr(args[0], "release", None)):
            checked = self.checks.check(args)
            given = [value if i in self.device else seen(value) for i, value in enumerate(checked)]
            return self._remembered(checked[0], self.body(*given), key)

    def _remembered(self, handle: Handle, operation: Operation, key: Any) -> _Prepared:
        """Prepare an operation for the handle and cache it under ``key``."""
        held: list[str] = []
        required = operation.memory_requirements()
        self._countable(operation, required)
        memory = tuple([self._demand(operation, name, required[name], held) for name in required])
        with handle.lock:
            prepared = _Prepared(operation, memory, handle.backend.prepare(operation), self.device, held)
            if key is not None and not CHECKS.off:
                handle.answers.keep(key, prepared)
        return prepared

    def _countable(self, operation: Operation, required: Mapping[str, MemoryRequirement]) -> None:
        """Refuse what exceeds 32-bit indexing: scalars of vector types and filters, counts between the operands."""
        counts = [*operation.counts.items(), *[(name, r.scalars) for name, r in required.items()]]
        for name, count in counts:
            if count >= SCALARS:
                spec = f" {operation.tensor(name)}" if name in required else ""
                text = f"{name}{spec} spans {count} scalars, fewer than {SCALARS} are supported"
                raise CudnnError(NOT_SUPPORTED, "cudnnSetTensor4dDescriptor/c03", text)

    def _position(self, operation: Operation, name: str, parameter: str, held: list[str]) -> int:
        """Return the index of an operand's memory; operands that a descriptor holds are appended to ``held`` and follow
        the arguments."""
        if parameter not in self.position:
            held.append(parameter)
            return self.count + len(held) - 1
        return self.position[parameter]

    def _demand(self, operation: Operation, name: str, required: MemoryRequirement, held: list[str]) -> Demand:
        parameter = self.named.get(name) or operation.parameter_of(name)
        return Demand(name, parameter, *required[:3], self._position(operation, name, parameter, held))

    def _start(self, handle: Handle, prepared: _Prepared, given: Sequence[Any]) -> Callable[[Any], None]:
        """Return the function of the stream that runs a call on this memory, which passed the checks now or earlier."""
        bound, known = getattr(prepared.launch, "bound", None), None
        if bound is None:
            return functools.partial(prepared.launch, self._operands(handle, prepared, given))
        if replay.live:
            find = handle.backend.operand
            try:
                known = tuple([None if (memory := given[i]) is None else find(memory) for i in prepared.positions])
                if (start := prepared.starts.get(known)) is not None:
                    return start
            except Exception:  # The checks below name the invalid memory.
                known = None
        operands = self._operands(handle, prepared, given)
        start, is_final, is_alone = bound(operands)
        if not is_alone:
            start = functools.partial(_start_all, handle.lock, start)
        if is_final and known is not None and not CHECKS.off:
            prepared.starts.keep(known, start)
        return start

    def _operands(self, handle: Handle, prepared: _Prepared, args: Sequence[Any]) -> list[Any]:
        """Return the operands of a call. Raise CudnnError if memory does not suffice, or if outputs share memory that a
        rule does not allow."""
        checks, o, small = self.checks, prepared.operation, self.small
        operands = [checked_operand(checks, handle, o, d, args[d.position], small.get(d.name)) for d in prepared.memory]
        for i, j, size, other_size in prepared.pairs:
            written, other = operands[i], operands[j]
            if -other_size < other.address - written.address < size:
                self._overlap(prepared, i, j, written, other)
        return operands

    def _overlap(self, prepared: _Prepared, i: int, j: int, written: Any, other: Any) -> None:
        """Refuse memory that an output shares with another operand, unless a rule allows it."""
        operation = prepared.operation
        name, other_name = prepared.memory[i].name, prepared.memory[j].name
        exact = written.address == other.address
        if not exact and not _elements_collide(operation, name, written, other_name, other):
            return
        rule = next((r for r in self.memory if {r.first, r.second} == {name, other_name}), None)
        size, other_size = prepared.memory[i].nbytes, prepared.memory[j].nbytes
        where = (
            f"{name} at {written.address:#x} ({size} bytes) and {other_name} at {other.address:#x} ({other_size} bytes)"
        )
        if rule is None:
            raise CudnnError(BAD_PARAM, INCORRECT_PARAMETER, f"{where} overlap")
        clause = rule.clause if "/" in rule.clause else f"{self.checks.name}/{rule.clause}"
        if rule.allowed is None or not exact or not rule.allowed(operation):
            described = f"{getattr(operation, name)} and {getattr(operation, other_name)}"
            raise CudnnError(rule.status, clause, f"{where} share memory with {described}")


def _start_all(lock: Any, start: Callable[[Any], None], stream: Any) -> None:
    """Start several launches; those of another thread do not come between."""
    with lock:
        start(stream)


class _Executing(_Computing):
    """Run a plan on the memory that a parameter pack holds; the body returns the operation and its memory in operand
    order."""

    def __init__(self, checks: _Documented, *rest: Any) -> None:
        super().__init__(checks, *rest)
        self.kinds = tuple(DESCRIPTORS[checks.parameters[i].base_type] for i in self.described)

    def _position(self, operation: Operation, name: str, parameter: str, held: list[str]) -> int:
        return operation.operands.index(name)

    def found(self, args: tuple[Any, ...]) -> tuple[_Prepared, Sequence[Any]]:
        handle, plan, pack = args
        of_plan, of_pack = self.kinds
        described = type(plan) is of_plan and type(pack) is of_pack
        plan_spec, pack_spec = (plan.spec, pack.spec) if described else (None, None)
        if plan_spec is None or pack_spec is None or type(handle) is not Handle or not handle.alive:
            checked = self.checks.check(args)
            plan_spec, pack_spec = map(seen, checked[1:])
        operation, memory = self.body(handle, plan_spec, pack_spec)
        if operation is None:
            return _IDLE, ()
        key = id(operation)  # The cached entry keeps the operation alive, so its id stays unique.
        return handle.answers.get(key) or self._remembered(handle, operation, key), memory


def checked_operand(
    checks: _Documented,
    handle: Handle,
    operation: Operation,
    demand: Demand,
    value: Any,
    small: tuple[str, cudnnStatus_t] | None = None,
) -> Any:
    """Return the operand behind a device argument, or None for a NULL that the operation allows; raise CudnnError if
    the memory cannot be used.

    small: the (clause, status) for a buffer that is too small, if the document names one.
    """
    name, parameter, nbytes, alignment, writes, _ = demand
    if value is None:
        if nbytes > 0 or name not in operation.raw:
            raise checks.refuse(parameter, f"is NULL, {nbytes} bytes are needed")
        return None
    try:
        operand = handle.backend.operand(value)
    except CudnnError:
        raise
    except Exception as error:  # A foreign object may raise anything.
        raise checks.refuse(parameter, str(error)) from error
    if operand.nbytes is not None and operand.nbytes < nbytes:
        clause, status = small or (INCORRECT_PARAMETER, BAD_PARAM)
        clause = clause if "/" in clause else f"{checks.name}/{clause}"
        described = "" if name in operation.raw else f" for {getattr(operation, name)}"
        raise CudnnError(status, clause, f"{parameter} has {operand.nbytes} bytes, {nbytes} are needed{described}")
    if operand.address % alignment:
        text = f"is at {operand.address:#x}, no multiple of the {alignment} bytes of its elements"
        raise checks.refuse(parameter, text)
    if writes and not operand.writable:
        raise checks.refuse(parameter, "is written, but its memory is read-only")
    return operand


def usable(
    call: str,
    handle: Handle,
    operation: Operation,
    memory: Mapping[str, Any],
    named: Mapping[str, str] = MappingProxyType({}),
    small: Mapping[str, tuple[str, cudnnStatus_t]] = MappingProxyType({}),
) -> list[Any]:
    """Return the operands of an operation that a host-side call runs, after the memory checks of computing calls.

    memory: maps an operand to the device memory that the caller passed.
    named, small: have the meaning that they have in ``computing``.
    """
    checks: _Documented = FUNCTIONS[call].checks  # type: ignore[attr-defined]
    demands = [
        Demand(name, named.get(name) or operation.parameter_of(name), *required[:3], 0)
        for name, required in operation.memory_requirements().items()
    ]
    return [checked_operand(checks, handle, operation, d, memory[d.name], small.get(d.name)) for d in demands]


def run(call: str, handle: Handle, operation: Operation, memory: Mapping[str, Any], failed: str) -> None:
    """Run an operation on behalf of a host-side call.

    memory: maps an operand to the device memory that the caller passed.
    failed: the clause of CUDNN_STATUS_EXECUTION_FAILED.
    """
    with handle.lock:
        operands = usable(call, handle, operation, memory)
        with FUNCTIONS[call].checks.errors(failed):  # type: ignore[attr-defined]
            handle.backend.prepare(operation)(operands, handle.stream)


def _elements_collide(operation: Operation, name: str, operand: Any, other_name: str, other: Any) -> bool:
    """Return whether two strided operands share an element; slices of one buffer can have overlapping ranges and share
    none."""
    if name in operation.raw or other_name in operation.raw:
        return True
    first, second = (_placed(operation.tensor(n), o.address) for n, o in ((name, operand), (other_name, other)))
    try:
        return bool(np.shares_memory(first, second, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _placed(spec: TensorSpec, address: int) -> np.ndarray[Any, Any]:
    """Return an array with the tensor's layout and address; its elements are never accessed."""
    dims, strides = spec.scalar_layout()
    size = spec.scalar_bytes
    interface = {
        "version": 3, "data": (address, False), "typestr": f"|V{size}", "shape": dims,
        "strides": tuple(stride * size for stride in strides),
    }  # fmt: skip
    holder = type("Placed", (), {"__array_interface__": interface})
    return np.asarray(holder())


class _Prepared:
    """Hold an operation that passed all checks, its operands' memory requirements and its launcher.

    ``pairs`` lists the operands that must not overlap: index of a written operand, index of another one, and the bytes
    of both. ``held`` names the operands that descriptors hold. ``positions`` are the indices of the call's memory.
    ``starts`` maps this memory, once it has passed all checks, to a function of the stream, for backends whose launchers can
    be bound to operands.
    """

    __slots__ = ("held", "launch", "memory", "operation", "pairs", "positions", "starts")

    def __init__(
        self,
        operation: Operation,
        memory: tuple[Demand, ...],
        launch: Any,
        device: tuple[int, ...] = (),
        held: Sequence[str] = (),
    ) -> None:
        self.operation, self.memory, self.launch, self.held = operation, memory, launch, held
        positions = {*device, *[demand.position for demand in memory]}
        self.positions, self.starts = sorted(positions), Answers(STARTS_KEPT)
        self.pairs = [
            (i, j, first.nbytes, second.nbytes)
            for i, first in enumerate(memory)
            for j, second in enumerate(memory)
            if first.writes and i != j and first.nbytes and second.nbytes and not (second.writes and j < i)
        ]


_IDLE = _Prepared(Operation(), (), lambda *_: None)  # It stands for a call that has nothing to do.
