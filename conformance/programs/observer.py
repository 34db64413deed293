"""Judge what a program computes with the library at PATH: ``DUALDNN_BACKEND=observe:PATH``.

The C library of this project (api/abi/) is placed between an unmodified program and the library it was written for.
Each call is made there with the program's own arguments. The same calls also fill our own descriptors, so that our
documented functions tell which operation a call means. Its memory is read before and after the call and compared with
the reference. A status that the document does not allow is noted too. The program notices nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import releases
from dualdnn.api.abi.c_types import ADDRESS, NATIVE, RESULTS, code_of, depth, destroys, element, read
from dualdnn.api.abi.entry import Border, Entry
from dualdnn.api.abi.faces import Face
from dualdnn.api.abi.objects import STRAY
from dualdnn.api.abi.pointers import bytes_behind, memory_at
from dualdnn.api.cudnn.library import CUDNN_VERSION
from dualdnn.api.descriptors import DESCRIPTORS, Descriptor
from dualdnn.api.document import Function, Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.handle import Handle
from dualdnn.api.operations import Operation
from dualdnn.api.status import CudnnError
from dualdnn.reference import ReferenceBackend, judge
from dualdnn.reference.entries import batch_of
from dualdnn.reference.formulas import has_samples

from ..recorded.model import Record, save_recording, status_of
from ..recorded.recorder import NOT_RECORDED, Recorder
from .asked import ASKED, Asked, NotTold
from .entries import EntriesWatch, chosen_of
from .findings import Findings, erratum, replayed
from .portion import Portion
from .watch import Watch, wants_sample

Array = np.ndarray[Any, Any]
# Among this many judged calls that keep contents, the last is judged with its whole batch, and so are weight gradients
# after it.
CHAINS = 8
AMPLE = 1 << 62  # bytes that our function gets as a size that the library decides
OWN = re.compile("(?i)workspace|reserve")  # sizes that the library decides
# Functions with these prefixes change an object; the excluded ones only compute.
SETS = re.compile(
    "cudnn(?!SetTensor$|SetStream$|BackendExecute$)(Create|Set|Restore|Backend|Init|Copy|Make|Update|Build|RNNSet)"
)
FORWARDED = ("cudnnSetCallback", "cudnnGetCallback", "cudnnGetProperty")
MAX_UNUSED = 8192  # calls that are followed until the contents that a judged call kept are used


class NotJudged(Exception):
    """Say why the results of a call cannot be judged."""


class Seen:
    """Wrap the program's device memory for our functions and the recorder.

    place: address of the memory. address: what our functions see. They differ for memory whose size the library
    decides: ours may need more bytes, which then overlap no other operand.
    """

    writable = True

    def __init__(self, memory: Memory, place: int, nbytes: int | None = None, is_own: bool = False) -> None:
        self.memory, self.place, self.nbytes = memory, place, nbytes
        self.address = place + AMPLE if is_own else place

    def to_host(self, dtype: Any, count: int) -> Array:
        return self.memory.read(self.place, count * np.dtype(dtype).itemsize).view(dtype)


def argument(parameter: Parameter, value: Any, memory: Memory) -> Any:
    """Return what our function gets for an argument of the library: sizes that the library decides are ample."""
    is_own = OWN.search(parameter.name) is not None
    if parameter.memory == "device" and parameter.name.lower() == "workspace":
        return Seen(memory, 1 << 20)
    if parameter.memory == "device" and is_own and type(value) is int and value:
        return Seen(memory, value, is_own=True)
    return AMPLE if parameter.base_type == "size_t" and parameter.direction == "in" and is_own else value


class Memory:
    """Read memory of the device, or of the process if there is no driver."""

    def __init__(self) -> None:
        try:
            self.driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.driver = None

    def synchronize(self, stream: int) -> None:
        """Wait for the device. Raises NotJudged if the call's stream is capturing, because waiting would end
        the capture.
        """
        if self.driver is None:
            return
        status = ctypes.c_int()
        if self.driver.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status)) or status.value:
            raise NotJudged("its stream is capturing")
        if self.driver.cuCtxSynchronize():
            raise NotJudged("the device could not be waited for")

    def available(self, address: int) -> int | None:
        """Return the bytes from an address to the end of its allocation, or None if unknown."""
        try:
            return bytes_behind(address)
        except ValueError:
            raise NotJudged(f"{address:#x} is not memory of the device") from None

    def read(self, address: int, nbytes: int) -> Array:
        """Return a copy of these bytes."""
        if self.driver is None:
            return memory_at(address, nbytes).copy()
        found = np.empty(nbytes, np.uint8)
        to = ctypes.c_void_p(found.ctypes.data)
        if nbytes and self.driver.cuMemcpyDtoH_v2(to, ctypes.c_uint64(address), ctypes.c_size_t(nbytes)):
            raise NotJudged(f"{nbytes} bytes at {address:#x} could not be read")
        return found


class Shadow(ReferenceBackend):
    """Compute nothing, and remember which operation was asked for."""

    description = "the operations of another library's calls"

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.asked: tuple[Operation, dict[str, Any]] | None = None

    def operand(self, value: Any) -> Any:
        return Seen(self.memory, value) if type(value) is int else value

    def prepare(self, operation: Operation) -> Callable[..., None]:
        def launch(operands: Any, _stream: Any) -> None:
            self.asked = operation, dict(zip(operation.operands, operands, strict=True))

        return launch

    def stream(self, value: Any) -> Any:
        return value


class Theirs:
    """Map the pointers of the other library to our descriptors and handles."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.pointers: dict[int, int] = {}  # id() of the object -> pointer
        self.unknown: set[int] = set()  # id() of descriptors with settings that our functions refused

    def get(self, pointer: int) -> Any:
        """Return the object behind a pointer, or None for NULL."""
        return self.objects.get(pointer, STRAY) if pointer else None

    def add(self, value: Any) -> int:
        """Return the pointer of an object that the library knows too, or NULL."""
        return self.pointers.get(id(value), 0)

    def put(self, pointer: int, value: Any) -> None:
        """Add a new object. The pointer of a freed object may be reused."""
        self.objects[pointer] = value
        self.pointers[id(value)] = pointer

    def destroyed(self, pointer: int) -> None:
        """Forget an object."""
        gone = self.objects.pop(pointer, None)
        self.pointers.pop(id(gone), None)
        self.unknown.discard(id(gone))

    def forget(self) -> None:
        """Forget all descriptors that the library can be asked about."""
        for pointer, value in list(self.objects.items()):
            if isinstance(value, Descriptor) and value.type_name in ASKED:
                self.destroyed(pointer)


class Observer(Border):
    """Export our library's functions and let another library answer."""

    is_replayed = False

    def __init__(self, ffi: Any, lib: Any, face: Face, path: str) -> None:
        super().__init__(ffi, lib, face)
        self.path = Path(path).resolve()
        # If our own library is observed, it computes by itself.
        os.environ["DUALDNN_BACKEND"] = "reference"
        self.library = ctypes.CDLL(str(self.path), mode=os.RTLD_LOCAL | os.RTLD_NOW | os.RTLD_DEEPBIND)
        self.objects = Theirs()
        self.marshalling.objects = self.objects
        self.memory, self.lock, self.findings = Memory(), threading.RLock(), Findings(self.path)
        self.portion = Portion.of_environment()
        # This maps an address to the batch entries it was judged for, and to the contents that the reference keeps for
        # later calls.
        self.kept: dict[int, tuple[tuple[int, ...] | None, Array]] = {}
        self.asked = Asked(face, self.foreign)
        self.numbers = {name: number for number, name in enumerate(face.functions)}
        self.is_passing = False  # whether calls went to the library without Python since calls were followed
        self.used = MAX_UNUSED  # followed calls since a judged call kept contents that are still unused
        self.sizes: dict[str, int] = {}  # last answers of the library's size queries
        self.record = os.environ.get("DUALDNN_RECORD")
        self.recorder = Recorder(self) if self.record else None
        self.version = self.foreign(functions()["cudnnGetVersion"])
        self.get_stream = self.foreign(functions()["cudnnGetStream"])
        self.number = int(self.version()) if self.version else 0
        # A call that this release serves beyond the document must not count as a wrong status.
        if self.number > CUDNN_VERSION:
            releases.act_by_default_as("8.9.7" if self.number < 90000 else "9.19")

    def __getattr__(self, name: str) -> Any:
        """Return the answer of a query for the recorder, if the program has asked it."""
        if name not in functions():
            raise AttributeError(name)

        def answer(*_: Any) -> int:
            if name not in self.sizes:
                raise TypeError(f"{name} was not asked")
            return self.sizes[name]

        return answer

    def foreign(self, function: Function) -> Any:
        """Return the library's own function, or None."""
        if not hasattr(self.library, function.name):
            return None
        foreign = getattr(self.library, function.name)
        foreign.argtypes = [NATIVE[code_of(parameter)] for parameter in function.parameters]
        foreign.restype = ctypes.c_size_t if function.name in RESULTS else ctypes.c_int
        return foreign

    def entry(self, function: Function) -> Entry:
        foreign = self.foreign(function)
        if foreign is None:
            return self._missing(function)
        if function.name in RESULTS or function.name in FORWARDED:
            return lambda c: int(foreign(*c))
        observed = Observed(self, function, foreign)
        if observed.may_pass:
            self.lib.pass_to(self.numbers[function.name], ctypes.cast(foreign, ctypes.c_void_p).value)

        def call(c: tuple[Any, ...]) -> int:
            with self.lock:
                began = time.monotonic()
                if self.is_passing and observed.may_pass:
                    self._resume()
                self.findings.calls[function.name] += 1
                number = observed(c)
                self.portion.spend(time.monotonic() - began - observed.seconds)
                self._pass()
                return number

        return call

    def _pass(self) -> None:
        """Pass calls on without Python while the budget is spent, unless contents of a judged call are still needed."""
        self.used += 1
        until = self.portion.resumes()
        if until and self.used > MAX_UNUSED and not self.is_passing:
            self.is_passing = True
            self.objects.forget()
            self.lib.pass_until(int(until * 1e9))

    def _resume(self) -> None:
        """Follow calls again: memory and descriptors may have changed meanwhile."""
        self.is_passing = False
        self.lib.pass_until(0)
        self.objects.forget()
        self.kept.clear()

    def bytes_of(self, operation: Operation, name: str, address: int) -> int | None:
        """Return how many bytes of an operand can be read, or None if nobody knows."""
        known, nbytes = self.memory.available(address), operation.nbytes(name)
        if known is not None:
            return min(known, nbytes)
        return nbytes if operation.memory_requirements()[name].nbytes >= nbytes else None

    def stream_of(self, handle: int) -> int:
        """Return the stream of a handle, as the library knows it."""
        stream = ctypes.c_uint64()
        return 0 if self.get_stream is None or self.get_stream(handle, ctypes.addressof(stream)) else stream.value

    def learn(self, pointer: int, base: str, may_be_new: bool) -> None:
        """Ask the library about a descriptor whose calls were not followed. A new one may hold nothing yet."""
        if pointer and base in ASKED and pointer not in self.objects.objects and self.portion.budget < 1:
            try:
                made = self.asked.descriptor(pointer, base)
            except NotTold as why:
                if not may_be_new:
                    raise NotJudged(f"a descriptor was set before its calls were followed: {why}") from None
                made = self.asked.new(base)
            self.objects.put(pointer, made)

    def finish(self) -> None:
        """Print the summary on standard error, and save the recording; once."""
        findings, self.findings = self.findings, Findings(self.path)
        passed = {name: self.lib.passed(number) for name, number in self.numbers.items()}
        findings.calls.update({name: count for name, count in passed.items() if count})
        if total := sum(passed.values()):
            findings.left[f"passed on unseen: judging takes {self.portion.budget:.0%} of the time"] += total
        print(findings.text(), file=sys.stderr, flush=True)
        if folder := os.environ.get("DUALDNN_OBSERVE_OUT"):
            findings.write(Path(folder))
        if self.recorder is not None and self.record:
            records = [
                Record(f"{n:05}", r.function, r.status, r.arguments, r.memory, r.result, r.note)
                for n, r in enumerate(self.recorder.records, 1)
            ]
            save_recording(self.record, self.path.name, self.number or 8003, "observed", records)
            print(f"recorded: {len(records)} calls in {self.record}", file=sys.stderr, flush=True)


class Observed:
    """Make the calls of one function twice: in the library and in ours."""

    def __init__(self, observer: Observer, function: Function, foreign: Any) -> None:
        self.observer, self.function, self.foreign = observer, function, foreign
        self.parameters = function.parameters
        rules = observer.marshalling
        self.body = observer.face.body(function.name)
        self.readers = [rules.reader(function, i) for i, p in enumerate(self.parameters) if not p.is_returned]
        self.returned = [(i, p) for i, p in enumerate(self.parameters) if p.is_returned]
        self.makes = [(i, p) for i, p in self.returned if p.base_type in DESCRIPTORS or p.base_type == "cudnnHandle_t"]
        self.described = [
            (i, p.base_type) for i, p in enumerate(self.parameters) if p.base_type in ASKED and not depth(p)
        ]
        self.destroys = destroys(function)
        self.sets = self.destroys or SETS.match(function.name) is not None
        changed = [p.base_type for p in self.parameters if p.base_type in DESCRIPTORS][:1]
        self.may_pass = not self.sets or any(base in ASKED for base in changed)
        self.answer: int | None = None  # status of the library for the current call
        self.seconds = 0.0  # time of the library in the current call

    def __call__(self, c: tuple[Any, ...]) -> int:
        """Return the library's own status, whatever the judgment."""
        observer = self.observer
        self.seconds = 0.0
        if self.body is None:
            observer.findings.left[f"{self.function.name} is not implemented here"] += 1
            return int(self.foreign(*c))
        try:
            for i, base in self.described:
                observer.learn(c[i], base, may_be_new=self.sets and i == 0)
            arguments = [read(c) for read in self.readers]
        except Exception as error:
            observer.findings.left[f"{self.function.name}: {error}"] += 1
            return int(self.foreign(*c))
        try:
            return self._twice(c, arguments)
        except Exception as error:  # Our mistake must not change their status.
            observer.findings.left[f"{self.function.name}: {type(error).__name__}: {error}"[:200]] += 1
            return int(self.foreign(*c)) if self.answer is None else self.answer

    def _twice(self, c: tuple[Any, ...], arguments: list[Any]) -> int:
        observer, name = self.observer, self.function.name
        self.answer = None
        held = [value for value in arguments if isinstance(value, Descriptor)]
        states = [(value, dict(vars(value))) for value in held]
        ours, refusal, asked = self._ours(arguments)
        look = Look(self, asked, c) if asked is not None else None
        number = self._foreign(c, arguments, ours, asked)
        theirs = status_of(number, observer.number)
        if number:
            for value, state in states:
                vars(value).clear()
                vars(value).update(state)
        stale = any(id(value) in observer.objects.unknown for value in held)
        if number == 0:
            self._follow(c, ours, refusal, held)
        described = f"{name}: {theirs.name.removeprefix('CUDNN_STATUS_')}"
        if stale:
            observer.findings.left["a descriptor holds what the document refuses"] += 1
        elif (number == 0) != (refusal is None):
            self._status(f"{described}, {refusal or 'the document has no reason to refuse it'}", refusal, theirs)
        elif refusal is not None and refusal.status != theirs:
            self._status(f"{described}, {refusal}", refusal, theirs)
        elif number == 0 and look is not None:
            look.finish()
        return number

    def _status(self, described: str, refusal: CudnnError | None, theirs: Any) -> None:
        ours = refusal.status.name.removeprefix("CUDNN_STATUS_") if refusal else "SUCCESS"
        clause = (refusal.clause if refusal else None) or ""
        known = erratum(self.function.name, ours, theirs.name.removeprefix("CUDNN_STATUS_"), clause)
        self.observer.findings.note("difference" if known else "status", described + known)

    def _ours(self, arguments: list[Any]) -> tuple[Any, CudnnError | None, Any]:
        """Return our function's result, its refusal, and the operation that it asked for."""
        observer = self.observer
        if self.function.name == "cudnnCreate":
            return Handle(Shadow(observer.memory), releases.current()), None, None
        pairs = zip(self.function.arguments, arguments, strict=True)
        given = [argument(parameter, value, observer.memory) for parameter, value in pairs]
        handle = next((value for value in arguments if isinstance(value, Handle)), None)
        shadow = handle.backend if handle is not None else None
        if shadow is not None:
            shadow.asked = None
        try:
            result = self.body(*given)  # type: ignore[misc]  # implemented
        except CudnnError as error:
            return None, error, None
        return result, None, shadow.asked if shadow is not None else None

    def _foreign(self, c: tuple[Any, ...], arguments: list[Any], ours: Any, asked: Any) -> int:
        """Make the call, and record it if wanted."""
        observer, recorder = self.observer, self.observer.recorder
        if recorder is not None and self.function.name not in functions():  # Records hold calls of the document alone.
            recorder.forget(arguments)
            recorder = None
        if recorder is None or self.function.name in NOT_RECORDED:
            began = time.monotonic()
            self.answer = int(self.foreign(*c))
            self.seconds = time.monotonic() - began
            return self.answer

        def perform(*_: Any) -> Any:
            number = self.answer = int(self.foreign(*c))
            if number:
                error = CudnnError(status_of(number, observer.number), "", "")
                error.number = number  # type: ignore[attr-defined]
                raise error
            return ours

        sizes: dict[int, int | None] = {}
        for name, operand in () if asked is None else asked[1].items():
            if operand is not None:
                with contextlib.suppress(NotJudged):  # The shadow's workspace is not memory.
                    sizes[operand.place] = observer.bytes_of(asked[0], name, operand.place)
        given = [
            Seen(observer.memory, value, sizes[value])
            if parameter.memory == "device" and type(value) is int and sizes.get(value) is not None
            else value
            for parameter, value in zip(self.function.arguments, arguments, strict=True)
        ]
        with contextlib.suppress(CudnnError):  # The answer contains the error too.
            recorder.call(self.function.name, perform, *given)
        assert self.answer is not None
        return self.answer

    def _follow(self, c: tuple[Any, ...], ours: Any, refusal: CudnnError | None, held: list[Descriptor]) -> None:
        """Follow a successful call of the library: new and destroyed objects, and its results compared with ours."""
        observer = self.observer
        if refusal is not None:
            if self.sets:
                observer.objects.unknown |= {id(value) for value in held[:1]}
            return
        if self.sets and held:
            observer.objects.unknown.discard(id(held[0]))
        values = (ours,) if len(self.returned) == 1 else ours
        for (i, parameter), value in zip(self.returned, values if self.returned else (), strict=True):
            if not c[i]:
                continue
            if (i, parameter) in self.makes and self.function.name.startswith("cudnnCreate"):
                observer.objects.put(read(ADDRESS, c[i])[0], value)
            elif parameter.base_type == "size_t" and parameter.length is None:
                (observer.sizes[self.function.name],) = read(ADDRESS, c[i])
            elif comparable(parameter) and (found := read(element(parameter.base_type), c[i])[0]) != int(value):
                text = f"{self.function.name}: {parameter.name} is {found}, by the document {int(value)}"
                observer.findings.note("result", text)
        if self.destroys:
            for pointer in read(ADDRESS, c[0], c[1]) if len(c) > 1 else (c[0],):
                observer.objects.destroyed(pointer)


class Look:
    """Observe a call that computes: its memory before, and what it writes.

    A large call with formulas is judged by a sample (programs/watch.py), and one with a divisible batch by some entries
    (programs/entries.py). Every element of other calls is judged.
    """

    def __init__(self, call: Observed, asked: tuple[Operation, dict[str, Any]], c: tuple[Any, ...]) -> None:
        self.call, self.observer, self.c = call, call.observer, c
        self.operation, self.operands = asked
        self.function = call.function.name
        self.stream = self.observer.stream_of(c[0])
        self.before: dict[str, Array] = {}
        self.watch: Watch | None = None
        self.entries: EntriesWatch | None = None
        self.row = self.observer.findings.row(self.function, self.operation)
        self.row.calls += 1
        self.reason = self.observer.portion.left_out(self.function, self.operation)
        if self.reason:
            return
        try:
            if self.operation.draws:
                raise NotJudged("its random numbers are the library's own")
            self.observer.memory.synchronize(self.stream)
            self._begin(self.row.calls)
        except NotJudged as why:
            self.reason = str(why)

    def _begin(self, number: int) -> None:
        read, spots = self.observer.memory.read, self.observer.portion.spots
        if wants_sample(self.operation, spots):
            watch = Watch(self.operation, self._seen(), read, spots, number)
            if watch.expected:
                self.watch = watch
                return
        chosen = self._chosen(number) if spots else None
        if chosen is None:
            self.before = self._contents()
        else:
            self.entries = EntriesWatch(self.operation, self._seen(), read, chosen)

    def _private(self, names: tuple[str, ...]) -> list[str]:
        """Return the operands among these whose contents have a form that only the library knows."""
        raw = {*self.operation.raw} - {*self.operation.public}
        return [name for name in self.operation.operands if name in raw and name in names]

    def _chosen(self, number: int) -> tuple[int, ...] | None:
        """Return the batch entries to judge, or None for all.

        They must be the entries that earlier calls were followed for.
        """
        chosen = chosen_of(self.operation, number)
        for name in self._private(self.operation.inputs):
            operand = self.operands[name]
            if operand is None or self._is_seen(name):
                continue
            followed, _ = self._kept(name)
            if followed is not None and not batch_of(self.operation):
                raise NotJudged(f"it adds up the whole batch, of which {name} was followed for some entries")
            return followed
        keeps = any(self.operation.nbytes(name) for name in self._private(self.operation.outputs))
        return None if keeps and self.row.judged % CHAINS == CHAINS - 1 else chosen

    def _kept(self, name: str) -> tuple[tuple[int, ...] | None, Array]:
        """Return what the reference keeps of a raw input, and for which entries."""
        operand = self.operands[name]
        if operand is None or operand.address not in self.observer.kept:
            raise NotJudged(f"{name} was not made by an observed call")
        return self.observer.kept[operand.address]

    def finish(self) -> None:
        """Judge what the call wrote."""
        try:
            if self.reason:
                raise NotJudged(self.reason)
            self.observer.memory.synchronize(self.stream)
            self._judge_sample(self.watch) if self.watch else self._judge_whole()
        except NotJudged as why:
            self.observer.findings.left[f"{self.function}: {why}"] += 1
            self.row.left[str(why)] += 1

    def _judge_sample(self, watch: Watch) -> None:
        problems = watch.finish()
        if not watch.said.ratios and not problems:
            raise NotJudged(next(iter(watch.said.untold), "no element could be judged"))
        self.row.take(watch.said)
        self._judged(max([watch.said.worst, *(found.ratio for found in watch.said.wrong)]), "\n".join(problems))

    def _judged(self, worst: float, problem: str) -> None:
        """Record a judgment. ``problem`` says what is wrong, and is empty otherwise."""
        self.row.judged += 1
        self.row.worst = max(self.row.worst, worst)
        if problem:
            self.row.wrong += 1
            text = f"{self.function}: {problem}\n    {replayed(self.operation)}"
            self.observer.findings.note("wrong", text, f"{self.function} {self.operation}")

    def _judge_whole(self) -> None:
        """Judge every element, of the whole batch or of some entries."""
        before = self.entries.before if self.entries else self.before
        needed = [name for name in self._private(self.operation.inputs) if self.operation.nbytes(name)]
        kept = {name: self._kept(name)[1] for name in needed if name not in before}
        if self.entries:
            verdict, chosen = self.entries.finish(kept), self.entries.chosen
        else:
            verdict, chosen = judge(self.operation, before, self._contents(), kept), None
        self.observer.used = MAX_UNUSED
        for name, contents in verdict.kept.items():
            if self.operands[name] is not None:  # The program did not want this result.
                self.observer.kept[self.operands[name].address] = chosen, contents
                self.observer.used = 0
        problem = verdict.explanation()
        part = f"of entries {', '.join(map(str, chosen))} of the batch, numbered anew: " if chosen and problem else ""
        self._judged(verdict.error_ratio, part + problem)

    def _seen(self) -> dict[str, tuple[int, int]]:
        """Return the address and the bytes of each operand whose contents are examined."""
        found = {}
        for name, operand in self.operands.items():
            if operand is None or not self._is_seen(name):
                continue
            size = self.observer.bytes_of(self.operation, name, operand.place)
            if size is None:
                raise NotJudged(f"nobody knows how much memory {name} has")
            found[name] = operand.place, size
        return found

    def _contents(self) -> dict[str, Array]:
        """Return the bytes that the operation reads and writes. Operands at one address share one array."""
        by_address: dict[tuple[int, int], Array] = {}
        found = {}
        for name, key in self._seen().items():
            if key not in by_address:
                by_address[key] = self.observer.memory.read(*key)
            found[name] = by_address[key]
        return found

    def _is_seen(self, name: str) -> bool:
        """Return whether an operand's contents are examined: not workspaces, nor memory in a form that
        only the library knows.
        """
        operation = self.operation
        if name not in (*operation.inputs, *operation.outputs):
            return False
        if name not in operation.raw or name in operation.public:
            return True
        if not has_samples(operation):
            return False  # Recurrent networks and attention use the library's own form, whatever its size.
        sizes = (i for i, p in enumerate(self.call.parameters) if p.name.lower() == f"{name}SizeInBytes".lower())
        return any(int(self.c[i]) == operation.nbytes(name) for i in sizes)


def comparable(parameter: Parameter) -> bool:
    """Return whether an output is one number that the document determines."""
    whole = parameter.base_type in ENUMERATIONS or parameter.base_type in ("int", "int32_t", "int64_t")
    return whole and parameter.length is None and parameter.base_type != "cudnnStatus_t"
