"""Record a call for the memo: the bytes of its outputs, its effects on objects, its launches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import c_double, c_float
from typing import Any

from ... import api_log
from ...answers import HANDLE
from ...descriptors import DESCRIPTORS
from ...document import Function
from ...enumerations import cudnnBackendAttributeType_t as Type
from ...functions import computing_of
from ...operations import replay
from ...status import BAD_PARAM, INVALID_VALUE, MAPPING_ERROR, NOT_SUPPORTED
from ..c_types import destroys
from ..objects import Objects
from .keys import ADDRESSES, BACKEND, DROPOUT, EXECUTES, KINDS, NAMING, SIZED, is_answered, scalars_of

# These are the effects in entries.c.
SET = 1
CREATE = 2
DESTROY = 3
HOLD = 4
NAME = 5
POINT = 6
STORE = 7
LAUNCH = -7  # status that tells C to run the recorded launches
REFUSALS = {BAD_PARAM, NOT_SUPPORTED, INVALID_VALUE, MAPPING_ERROR}  # These statuses depend only on the arguments.
COUNTS = ("entries", "bytes", "asked", "hits", "values", "emptied", "compared", "differ")
Scalars = Mapping[str, tuple[int, Any]]  # It maps a name to (index of the argument, its value).


class Memo:
    """Give Python access to the memo of one library. number: maps a status to the number of the library's face."""

    def __init__(self, ffi: Any, lib: Any, objects: Objects, number: Callable[[int], int]) -> None:
        self.ffi, self.lib, self.objects, self.number = ffi, lib, objects, number
        self.mode = replay.mode
        # This setting prints every error, so Python must see every call.
        if os.environ.get("DUALDNN_SHOW_ERRORS") == "1":
            self.mode = 0
        if entries := os.environ.get("DUALDNN_MEMO_ENTRIES"):
            if not (entries.isascii() and entries.isdecimal() and int(entries)):
                raise ValueError(f"DUALDNN_MEMO_ENTRIES={entries!r}: expected how many entries the memo has at most")
            lib.memo_limits(int(entries), 64 << 20)
        self.launches = Launches(ffi, lib)

    def refresh(self) -> None:
        """Enable the memo, unless the log or another observer needs Python to compute every call."""
        self.lib.memo_live = 0 if api_log.state.mask or replay.is_suspended() else self.mode

    def counts(self) -> dict[str, int]:
        """Return the counters of ``COUNTS``: entries, their bytes, calls that Python served, calls that the memo
        answered, and so on."""
        found = self.ffi.new("unsigned long long[8]")
        self.lib.memo_counts(found)
        return dict(zip(COUNTS, found, strict=True))

    def keeper(self, function: Function) -> Keeper | None:
        """Return the recorder of a function's calls, or None if the memo never answers them."""
        return Keeper(self, function) if is_answered(function) else None


class Keeper:
    """Record the calls of one function for the memo."""

    def __init__(self, memo: Memo, function: Function) -> None:
        self.memo, self.ffi, self.lib, self.objects = memo, memo.ffi, memo.lib, memo.objects
        self.name, self.parameters = function.name, function.parameters
        self.computes = computing_of(function.name) is not None
        self.described = [
            (i, p.direction != "in")
            for i, p in enumerate(self.parameters)
            if p.base_type in DESCRIPTORS and not p.is_pointer
        ]
        self.destroys = destroys(function)
        names, dropouts = (
            [p.name for p in self.parameters],
            [i for i, p in enumerate(self.parameters) if p.base_type == DROPOUT],
        )
        self.naming = (
            [  # Each entry is (index of the object, index of its reference, index of the argument).
                (i, k, j)
                for i, p in enumerate(self.parameters)
                if p.base_type in NAMING
                for k, j in enumerate(dropouts)
            ]
            if function.name.startswith("cudnnSet")
            else []
        )
        self.sized = [names.index(name) for name in SIZED.get(function.name, ())]
        # This is (index of the object, index of the argument) for an object that stores an address, or a handle that
        # stores its stream.
        self.holding = {"cudnnSetStream": (0, 1), "cudnnRestoreDropoutDescriptor": (0, 3)}.get(function.name)
        self.scalars = scalars_of(function)

    def asks(self) -> bool:
        """Return whether the memo wants a record of the call that this thread serves."""
        return bool(self.lib.memo_asks())

    def refused(self, status: int, text: str) -> None:
        """Record an error that depends only on the arguments, and not on memory.

        Messages about a backend descriptor may show its addresses.
        """
        if self.name.startswith(BACKEND):
            return
        if not self.computes and not self.sized and status in REFUSALS and self.asks() and self.lib.draft_begin():
            self.lib.draft_keep(self.memo.number(status), text.encode())

    def answered(self, c: tuple[Any, ...], outputs: Sequence[tuple[int, Any, Any]], changed: set[int]) -> None:
        """Record a call that succeeded.

        outputs: for each result that the caller wants the index of its argument, the result and its bytes.
        changed: the pointers of changed descriptors.
        """
        if self.computes or not self.asks() or not self.lib.draft_begin():
            return
        lib = self.lib
        if self.sized and not self._sized(c):
            return
        if any(c[i] in self.objects.kept for i, _ in self.described):
            return  # The call has made Python keep the descriptor's state.
        for i, result, data in outputs:
            if self.parameters[i].base_type in DESCRIPTORS:
                if not (number := self.objects.number_of(result)):
                    return
                lib.draft_effect(i, CREATE, KINDS[self.parameters[i].base_type], number)
            elif data and not (self.sized and self._pointed(c, i, result)):
                lib.draft_output(i, data, len(data))
        for i, is_set in self.described:
            # A descriptor that keeps its value is recorded too, so the key need not contain the earlier value.
            if c[i] and not self.destroys and (is_set or c[i] in changed):
                lib.draft_effect(i, SET, 0, self.objects.number_of(self.objects.get(c[i])))
        if self.destroys and c[0]:
            lib.draft_effect(0, DESTROY, 0, 0)
        if self.name == f"{BACKEND}SetAttribute" and c[2] == Type.CUDNN_TYPE_VOID_PTR:
            lib.draft_effect(0, STORE, ADDRESSES[c[1]], c[3])
        for i, which, argument in self.naming:
            lib.draft_effect(i, NAME, argument, which)
        if self.holding:
            lib.draft_effect(self.holding[0], HOLD, self.holding[1], 0)
        lib.draft_keep(0, self.ffi.NULL)

    def _sized(self, c: tuple[Any, ...]) -> bool:
        """Record how much memory the call needs at its address; return whether C can check that."""
        handle = next(self.objects.get(c[i]) for i, p in enumerate(self.parameters) if p.base_type == HANDLE)
        device, (address, size) = getattr(handle.backend, "device", None), self.sized
        if device is None:
            return not getattr(handle.backend, "sizes_are_known", True)
        if device.knows_extents:
            self.lib.draft_least(address, c[size])
        return self.memo.launches.serves(device)

    def _pointed(self, c: tuple[Any, ...], i: int, result: Any) -> bool:
        """Record an output that is an address inside the call's memory; return whether it is one."""
        delta = -1 if result is None else result - c[self.sized[0]]
        if 0 <= delta < 2**32:
            self.lib.draft_effect(i, POINT, self.sized[0], delta)
        return bool(0 <= delta < 2**32)

    def launching(self, arguments: Sequence[Any]) -> Launching:
        """Return the launcher that replaces the backend's for a computing call with these arguments."""
        return Launching(self, arguments)


class Launching:
    """Record the launches of a call if possible, else run them. status: what the border returns to C."""

    def __init__(self, keeper: Keeper, arguments: Sequence[Any]) -> None:
        self.keeper, self.status = keeper, 0
        self.scalars = {name: (i, arguments[i]) for name, i in keeper.scalars.items()}
        self.executed = arguments[1:] if keeper.name == EXECUTES else None

    def __call__(self, handle: Any, prepared: Any, operands: list[Any]) -> None:
        keeper, is_kept = self.keeper, False
        with suppress(Exception):  # The launch below reports any error.
            places = self.executed and _places(*self.executed)
            is_kept = keeper.memo.launches.say(self.scalars, places, handle, prepared, operands)
        if is_kept and keeper.lib.draft_keep(0, keeper.ffi.NULL):
            self.status = LAUNCH
        else:
            prepared.launch(operands, handle.stream)


class Launches:
    """Record launches for the memo, and run the launches that C cannot, on a device that only Python can access."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self.device: Any = None  # All recorded calls run on this device.
        self.by_driver = False
        self.kernels: list[Any] = []  # It holds (function, shape) of a launch by number.
        self.numbers: dict[Any, int] = {}
        self.scratch: list[Any] = []  # It holds device memory of the driver, whose addresses C uses.
        self.lent = threading.local()

    def say(
        self, scalars: Scalars, places: Sequence[int] | None, handle: Any, prepared: Any, operands: list[Any]
    ) -> bool:
        """Record the checked pairs of operands, the memory that they need, and the launches; return whether C can
        repeat the call.

        scalars: maps fields of the operation to call arguments that a launch may use directly.
        places: lists the index of each operand's memory in C, or is None if that is its argument's index.
        """
        recorded = getattr(prepared.launch, "recorded", None)
        arguments = places or [demand.position for demand in prepared.memory]
        if recorded is None or not self.serves(handle.backend.device):
            return False
        record = recorded([0 if operand is None else operand.address for operand in operands])
        steps = [step for part in record.parts for step in part.steps]
        if not record.final or not all(hasattr(step, "function") for step in steps) or not self.lib.draft_begin():
            return False
        for i, j, size, other in prepared.pairs:
            if operands[i] is not None and operands[j] is not None:
                self.lib.draft_pair(arguments[i], arguments[j], size, other)
        if self.device.knows_extents:
            for argument, demand, operand in zip(arguments, prepared.memory, operands, strict=True):
                if operand is not None:
                    self.lib.draft_least(argument, demand.nbytes)
        scratch_bytes = max((part.scratch_bytes for part in record.parts), default=0)
        if scratch_bytes and self.by_driver and not self._has_scratch(handle, scratch_bytes):
            return False
        any_value = _are_filled_in(scalars, prepared.launch.plan.values, steps)
        self.lib.draft_launches(self.by_driver, scratch_bytes, any_value)
        return all(self._say_step(step, arguments, scalars if any_value else {}) for step in steps)

    def serves(self, device: Any) -> bool:
        """Return whether calls on a device are recorded: only one device is, and C must have opened it."""
        if self.device is None:
            self.by_driver = bool(device.native_context)
            if self.by_driver and not self.lib.driver_open(device.native_context):
                return False
            self.device = device
        return self.device is device

    def _has_scratch(self, handle: Any, nbytes: int) -> bool:
        """Give C its own scratch memory for the handle's stream, separate from Python's; return whether C has it."""
        stream = handle.user_stream or 0
        if self.lib.scratch_is_known(stream, nbytes):
            return True
        piece = self.device.scratch.new(nbytes)
        self.scratch.append(piece)
        return bool(self.lib.scratch_add(stream, piece.address, piece.nbytes))

    def _say_step(self, step: Any, arguments: Sequence[int], scalars: Scalars) -> bool:
        native = step.function.native(step.shape)
        if (native is None) == self.by_driver:
            return False
        if native is None:
            kernel, shape = self._number(step.function, step.shape), [0] * 9
        else:
            kernel, shape = native.handle, [*native.grid, *native.block, *native[3:]]
        template = step.encoded([where.value for _, where, _ in step.maps]) if step.maps else step.template
        self.lib.draft_step(kernel, shape, template, len(template))
        words = [(8 * i, operand, delta, 0) for i, (operand, delta) in enumerate(step.operands)]
        words += [(offset, where.operand, where.delta, 1) for offset, where, _ in step.maps]
        for offset, operand, delta, is_map in words:  # The first word of a tensor map is the tensor's address.
            self.lib.draft_place(offset, arguments[operand] if operand >= 0 else operand, delta, is_map)
        for offset, kind, scalar in step.scalars:
            if scalar.name in scalars:
                count = len(scalar.divisors)
                divisors = self.ffi.new("double[]", scalar.divisors or 1)
                self.lib.draft_scalar(offset, scalars[scalar.name][0], kind is c_double, divisors, count)
        return True

    def _number(self, function: Any, shape: Any) -> int:
        key = (function, shape)
        if key not in self.numbers:
            self.numbers[key] = len(self.kernels)
            self.kernels.append(key)
        return self.numbers[key]

    # C calls the following methods.

    def launch(self, kernel: int, arguments: int, nbytes: int, stream: int) -> int:
        """Launch on the device; return a nonzero value on failure."""
        function, shape = self.kernels[kernel]
        try:
            function.issue(bytes(self.ffi.buffer(self.ffi.cast("char *", arguments), nbytes)), shape, None)
        except Exception:  # C then passes the whole call to Python, which reports the error.
            return 1
        return 0

    def scratch_of(self, nbytes: int) -> int:
        """Return the address of scratch memory, which this thread keeps until its next request."""
        self.lent.piece = self.device.scratch.new(nbytes)
        return int(self.lent.piece.address)

    def fits(self, addresses: Any, sizes: Any, count: int) -> int:
        """Return 1 if the device has enough bytes at each address, else 0."""
        for i in range(count):
            try:
                extent = self.device.extent(addresses[i]) if addresses[i] else None
            except ValueError:
                return 0
            if extent is not None and extent < sizes[i]:
                return 0
        return 1


def _places(plan: Any, pack: Any) -> list[int]:
    """Return where C has the memory of an execution's operands: the pack's workspace, then its pointers, follow the
    three arguments."""
    place = {uid: 4 + i for i, uid in enumerate(pack.spec.record.pointers)}
    return [*(place[uid] for uid in plan.spec.record.uids), 3]


def _are_filled_in(scalars: Scalars, values: Mapping[str, float] | None, steps: Sequence[Any]) -> bool:
    """Return whether the launches use scalars only as kernel arguments. values: the scalars that the plan wrote
    there."""
    if values is None or not scalars:
        return False
    kinds = {kind for step in steps for _, kind, _ in step.scalars}
    return kinds <= {c_float, c_double} and all(values.get(name) == given for name, (_, given) in scalars.items())
