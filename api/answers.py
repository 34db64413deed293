"""Cache the answers of host-side calls. A repeated call costs one look-up if its answer depends only on its arguments'
values.

``NEVER`` and ``BEGINNINGS_NEVER`` declare the exceptions: functions that read the clock, the driver or another call's
state, or change state outside their arguments. The C library's memo (``abi/memo``) follows the same declarations.
``DUALDNN_MEMO=check`` recomputes each repeated call and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any

from . import api_log, releases
from .descriptors import DESCRIPTORS, Descriptor
from .document import Function, Parameter
from .enumerations import ENUMERATIONS
from .operations import replay
from .operations.answers import Answers
from .status import CHECKS, INTERNAL_ERROR, CudnnError

# These descriptors consist of a specification and options only. They hold no memory and refer to no other object.
VALUES = {
    f"cudnn{kind}Descriptor_t"
    for kind in (
        "Tensor", "Filter", "Convolution", "Activation", "Pooling", "OpTensor", "ReduceTensor", "LRN", "RNNData", "SeqData", "TensorTransform",
        "SpatialTransformer", "CTCLoss",
    )
}  # fmt: skip
# A specification of these types depends on a dropout descriptor. A repeated setter stores the descriptor of its own call.
QUERIED = {"cudnnRNNDescriptor_t", "cudnnAttnDescriptor_t"}
OPTIONED = {"cudnnConvolutionDescriptor_t"}  # Options of these types have setters of their own.
REPLACED = VALUES - OPTIONED  # Setters of these types overwrite the complete state.
DROPOUT = "cudnnDropoutDescriptor_t"
NEVER = {
    "cudnnCreate": "opens a device",
    "cudnnDestroy": "waits for the device",
    "cudnnQueryRuntimeError": "asks the device",
    "cudnnSetCallback": "changes what every call does",
    "cudnnGetCallback": "says what another call has set",
    "cudnnSetTensor": "takes a value of a type that the tensor decides",
}
BEGINNINGS_NEVER = {"cudnnFind": "runs algorithms by the clock", "cudnnBackend": "changes attributes one by one"}
# INTEGERS maps a C type to its (lowest, highest) value.
INTEGERS = {
    "int": (-(2**31), 2**31 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "unsigned": (0, 2**32 - 1),
    "uint32_t": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    "size_t": (0, 2**64 - 1),
    "unsigned long long": (0, 2**64 - 1),
}
HANDLE = "cudnnHandle_t"
FLOATS = ("float", "double")
STREAM = "cudaStream_t"
PASSED = {*ENUMERATIONS, *INTEGERS, *FLOATS, STREAM}  # arguments that a key can hold
POINTED = {*ENUMERATIONS, *INTEGERS, "void"}  # arrays that a key can hold, and a number of the type that the call names
PLAIN = frozenset({bool, float, int, *ENUMERATIONS.values()})  # These types are immutable.
MAX_PACKED = 1024  # numbers of an array that a key can hold
PACKERS = [Struct(f"{count}q").pack for count in range(MAX_PACKED + 1)]
# PACK maps a type to what packs the integers of an array for a key, by their number. Other sequences may be mutable.
PACK = {list: PACKERS, tuple: PACKERS}


def depends_on_more(name: str) -> bool:
    """Return whether a function is declared to depend on more than its arguments."""
    return name in NEVER or name.startswith(tuple(BEGINNINGS_NEVER))


def is_replaced_by(name: str, parameter: Parameter) -> bool:
    """Return whether a function overwrites a descriptor completely, so that its answer does not depend on the old
    state."""
    return (
        name.startswith(("cudnnSet", "cudnnGetRNNWeightParams"))
        and parameter.direction != "in"
        and parameter.base_type in REPLACED
    )


def _states(function: Function) -> list[int]:
    """Return the indices of the descriptors whose state a key can hold."""
    values = VALUES | (QUERIED if function.name.startswith(("cudnnGet", "cudnnSet", "cudnnRNN")) else set())
    return [i for i, p in enumerate(function.arguments) if p.base_type in values and not p.is_pointer]


def _named(function: Function) -> list[int]:
    """Return the indices of the dropout descriptors that a setter of a network or attention stores. It replaces all."""
    base_types = [p.base_type for p in function.arguments]
    return [i for i, base_type in enumerate(base_types) if base_type == DROPOUT and QUERIED & {*base_types}]


def is_repeated(function: Function) -> bool:
    """Return whether the answers of a host-side function depend on nothing but the values of its arguments."""
    parameters, states = function.arguments, [*_states(function), *_named(function)]
    rest = [p for i, p in enumerate(parameters) if i not in states and (i or p.base_type != HANDLE)]
    known = all(p.base_type in (POINTED if p.is_pointer else PASSED) and p.memory != "device" for p in rest)
    makes = any(p.base_type in (HANDLE, *DESCRIPTORS) for p in function.parameters if p.is_returned)
    is_asked = bool(states or rest) and not function.name.startswith("cudnnDestroy")
    return known and is_asked and not makes and not depends_on_more(function.name)


def repeating(function: Function, anew: Callable[..., Any]) -> Callable[..., Any]:
    """Return a host-side function, in a caching version if it is repeated.

    A cached answer holds the result and the new values of the descriptors that the call changes. Errors are not cached.

    anew: logs a call and computes its answer.
    """
    parameters = function.arguments
    has_handle = bool(parameters) and parameters[0].base_type == HANDLE
    if not is_repeated(function):
        return quick(function, anew)[1]
    own, states, is_query = Answers(), _states(function), function.name.startswith("cudnnGet")
    altered = [i for i in states if not (is_query and parameters[i].direction == "in")]
    altered += [0 for p in parameters if p.base_type == STREAM]  # The handle gets another stream.
    changed = {i: attrgetter(*_attributes(parameters[i])) for i in altered}
    dropouts = _named(function)
    naming = [i for i in states if dropouts and parameters[i].base_type in QUERIED]
    numbers = [i for i, p in enumerate(parameters) if p.base_type in PASSED | POINTED]

    def made(*arguments: Any) -> Any:
        """Compute the answer; cache it, or raise INTERNAL_ERROR if it differs from the cached one."""
        if api_log.active or not replay.live or CHECKS.off or (releases.in_use and not has_handle):
            return anew(*arguments)
        try:
            key, kept = key_of(*arguments), arguments[0].answers if has_handle else own
            found = kept.get(key)
        except Exception:  # The checks name the wrong argument.
            return anew(*arguments)
        result = anew(*arguments)
        answer = (result, *[state_of(arguments[i]) for i, state_of in changed.items()])
        if found is not None:
            require_same(found, answer, function.name)
        given = [tuple(a) if type(a := arguments[i]) is list else a for i in numbers]
        if found is None and _is_plain((result, *given)):
            kept.keep(key, answer)
        return result

    names = [p.name for p in parameters]
    effects = [
        f"{', '.join(f'{names[i]}.{name}' for name in _attributes(parameters[i]))} = found_[{n}]"
        for n, i in enumerate(changed, 1)
    ]
    effects += [f"{names[i]}.named = ({', '.join(names[j] for j in dropouts)},)" for i in naming]
    key_of, call = quick(function, made, [*effects, "return found_[0]"], None if has_handle else own)
    return call


def require_same(found: Any, answer: Any, name: str) -> None:
    """Raise INTERNAL_ERROR if a call's cached answer differs from its new one."""
    if repr(found) != repr(answer):
        text = f"{found!r:.500} was answered before, {answer!r:.500} to the same arguments"
        raise CudnnError(INTERNAL_ERROR, None, text, name)


def quick(
    function: Function,
    slow: Callable[..., Any],
    answered: Sequence[str] = (),
    own: Answers | None = None,
    held: Callable[..., Any] | None = None,
    optional: Collection[str] = (),
) -> tuple[Callable[..., tuple[Any, ...]], Callable[..., Any]]:
    """Return two functions of a call's arguments: one makes the cache key, in which a type precedes each value, and
    raises any exception if there is no key; the other is the call.

    The call is written as text, so that it runs few other functions of Python where its answer is cached.

    slow: serves a call without a cached answer, or one that somebody observes. answered: statements that return the
    cached answer ``found_``; there is none without them. own: the answers of a function without a handle. held: returns the
    memory that a computing call's descriptors hold; None for a host-side function. optional: names parameters that may be
    NULL although the function table does not say so.
    """
    parts = [f"{function.name!r}"]
    for p in function.arguments:
        a = p.name
        if p.base_type == HANDLE:
            continue
        if p.memory == "device":
            if p.nullable or p.name in optional or p.base_type in INTEGERS:
                parts.append(f"{a} is None")
        elif p.base_type in DESCRIPTORS:
            if held is None:
                parts.append(f"type({a}), {_state(function, p, a)}")
            else:
                is_optional = (optional or p.nullable) and not p.is_pointer
                parts.append(
                    f"seen_({a})" if p.is_pointer else f"{a}.spec.mark" + f" if {a} is not None else {a}" * is_optional
                )
        elif p.is_pointer and p.typed_by is None and p.base_type != "void":
            types = f", *map(type, {a})" if p.base_type in ENUMERATIONS else ""
            parts.append(f"pack_[type({a})][len({a})](*{a}){types}")
        elif p.base_type in (*FLOATS, "void"):  # Their text distinguishes -0.0 from 0.0 and lets NaN equal itself.
            parts.append(f"type({a}), {a} if {a} == {a} != 0 else repr({a})")
        else:
            parts.append(f"type({a}), {a}")
    names, key = ", ".join(p.name for p in function.arguments), f"({', '.join(parts)},)"
    text = f"def key_({names}):\n    return {key}\ndef {function.name}({names}):\n"
    if answered:
        text += f"""
    if replay_.live and not (replay_.compares or log_.active or checks_.off{" or releases_.in_use" * (own is not None)}):
        try:
            found_ = {function.arguments[0].name + ".answers" if own is None else "own_"}.get({key})
            if found_ is not None:
                {(chr(10) + 16 * " ").join(answered)}
        except Exception:
            pass
"""
    text += f"    return slow_({names})"
    made: dict[str, Any] = {
        "pack_": PACK, "seen_": seen, "own_": own, "slow_": slow, "replay_": replay, "log_": api_log, "checks_": CHECKS,
        "releases_": releases, "held_": held,
    }  # fmt: skip
    exec(compile(text, f"<call of {function.name}>", "exec"), made)
    return made["key_"], made[function.name]


def _attributes(parameter: Parameter) -> tuple[str, ...]:
    """Return the names of the attributes that hold the state of a handle or descriptor that a call changes."""
    if parameter.base_type == HANDLE:
        return "stream", "user_stream"
    return (
        ("spec", "options")
        if parameter.base_type in OPTIONED
        else ("spec" if parameter.base_type in VALUES else "value",)
    )


def _state(function: Function, parameter: Parameter, name: str) -> str:
    """Return the text of the part of a key that holds the state of a descriptor with this name."""
    base_type = parameter.base_type
    if base_type == DROPOUT:
        return f"{name} and ({name}.alive, {name}.spec)"
    if is_replaced_by(function.name, parameter) or (base_type in QUERIED and _named(function)):
        return f"{name}.alive"
    if base_type in VALUES:
        return f"{name}.alive, {name}.spec and {name}.spec.mark" + f", {name}.options" * (base_type in OPTIONED)
    return f"{name}.alive, {name}.{'spec' if function.name.startswith('cudnnGet') else 'value'}"


def seen(value: Any) -> Any:
    """Return an argument as a body gets it: a descriptor becomes its specification, an array of them a tuple; other
    values are unchanged."""
    if isinstance(value, Descriptor):
        return value.spec
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Descriptor):
        return tuple(item.spec for item in value)
    return value


def _is_plain(value: Any) -> bool:
    """Return whether a value is immutable."""
    return value is None or type(value) in PLAIN or (isinstance(value, tuple) and all(map(_is_plain, value)))
