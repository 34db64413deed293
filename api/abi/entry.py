"""Implement the border between C and Python: one Python function behind all exports, which never raises."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from ctypes import addressof, create_string_buffer
from importlib import import_module
from typing import Any

from .. import cudnn, releases
from ..document import Function
from ..functions import computing_of
from ..handle import Handle
from ..operations import replay
from ..status import BAD_PARAM, INTERNAL_ERROR, NOT_SUPPORTED, CudnnError
from .c_types import ADDRESS, RESULTS, destroys, is_query, read, words_of
from .faces import Face, face
from .marshalling import Marshalling
from .memo.keeping import Memo
from .objects import Objects
from .pointers import pointer_backend

Entry = Callable[[tuple[Any, ...]], int]


class Border:
    """Hold the Python functions that the exports of one C library call.

    entries: maps the number of a function to (reader of a call's words, bytes of these words, function that serves it).
    is_replayed: whether the memo may answer instead of Python.
    """

    is_replayed = True

    def __init__(self, ffi: Any, lib: Any, face: Face) -> None:
        self.ffi, self.lib, self.face = ffi, lib, face
        self.objects: Any = Objects(ffi, lib)
        self.memo = Memo(ffi, lib, self.objects, face.status)
        self.marshalling = Marshalling(self.objects, lib, face)
        self.buffer, self.functions = ffi.buffer, [*face.functions.values()]
        self.entries: dict[int, tuple[Callable[[Any], tuple[Any, ...]], int, Entry]] = {}
        self.shown = os.environ.get("DUALDNN_SHOW_ERRORS") == "1"
        self.strings: dict[str, Any] = {}  # C keeps pointers to these strings.
        self.reported: set[str] = set()
        self.instead: dict[str, Callable[..., Any]] = {
            "cudnnCreate": create_handle,
            "cudnnGetProperty": self.library_property,
        }

    def refuse(self, status: int, text: str) -> int:
        """Store the reason of an error for this thread, and return the status."""
        self.lib.dualdnn_say(text.encode())
        if self.shown:
            print(text, file=sys.stderr, flush=True)
        return self.face.status(status)

    def library_property(self, kind: Any) -> int:
        """Return a part of the face's version, for cudnnGetProperty."""
        cudnn.cudnnGetProperty(kind)
        return self.face.version[kind]

    def serve(self, number: int, words: Any) -> int:
        """Serve a call of the function with this number in the face's table, and return its status.

        words: the address of its arguments. The entry of a function is made with its first call.
        """
        try:
            unpack, size, entry = self.entries[number]
        except KeyError:
            function = self.functions[number]
            unpack, size = (layout := words_of(function)).unpack, layout.size
            entry = self.entry(function)
            self.entries[number] = unpack, size, entry
        return entry(unpack(self.buffer(words, size)))

    def entry(self, function: Function) -> Entry:
        """Return the Python function that takes a call's arguments, which are numbers and addresses."""
        if function.name in RESULTS:
            return self._plain(function.name)
        name, parameters, refuse = function.name, function.parameters, self.refuse
        body = self.instead.get(name) or self.face.body(name)
        if body is None:
            return self._missing(function)
        rules = self.marshalling
        readers = tuple(rules.reader(function, i) for i, p in enumerate(parameters) if not p.is_returned)
        returned = [i for i, p in enumerate(parameters) if p.is_returned]
        # Each writer is (index of the value, index of the argument, rule). The last comes first: arrays may be refused,
        # so they precede their counts.
        writers = tuple((k, i, rules.writer(function, i)) for k, i in reversed(list(enumerate(returned))))
        required = tuple((i, p.name) for i, p in enumerate(parameters) if p.is_returned and not p.nullable)
        ends_objects = destroys(function)
        names = [p.name for p in parameters]
        paired = tuple((i, names.index(p.null_with), p.name) for i, p in enumerate(parameters) if p.null_with)
        objects, keeper, compute, store = self.objects, self.memo.keeper(function), computing_of(name), self.lib.store
        changes_none = compute is not None or is_query(function)

        def require(c: tuple[Any, ...]) -> None:
            for i, output in required:
                if not c[i]:
                    raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"{output} is NULL", name)
            for i, other, output in paired:
                if bool(c[i]) != bool(c[other]):
                    text = f"{output} and {names[other]} are not both NULL, and not both given"
                    raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", text, name)

        def serve(c: tuple[Any, ...]) -> int:
            if required or paired:
                require(c)
            arguments = tuple([read(c) for read in readers])
            if keeper is not None and compute is not None and keeper.asks():
                launching = keeper.launching(arguments)
                compute.run(arguments, launching)
                return launching.status
            result = body(*arguments)
            results = (result,) if len(writers) == 1 else result
            outputs = [(i, results[k], encode(c, results[k])) for k, i, encode in writers if c[i]]
            for i, _, data in outputs:
                if data is not None:
                    store(c[i], data, len(data))
            if ends_objects:
                for pointer in read(ADDRESS, c[0], c[1]) if len(c) > 1 else (c[0],):
                    objects.destroyed(pointer)
            changed = set[int]() if changes_none else objects.changes()
            if name == "cudnnSetStream":
                self.lib.object_set(c[0], objects.number_of(objects.get(c[0])), c[1], (0, 0))
            if keeper is not None:
                keeper.answered(c, outputs, changed)
            return 0

        def call(c: tuple[Any, ...]) -> int:
            outer = objects.begin()
            try:
                return serve(c)
            except CudnnError as error:
                if keeper is not None:
                    keeper.refused(error.status, str(error))
                return refuse(error.status, str(error))
            except BaseException:  # C must get a status for a bug or an interrupt too.
                return refuse(INTERNAL_ERROR, f"{name}: CUDNN_STATUS_INTERNAL_ERROR: {traceback.format_exc()}")
            finally:
                objects.end(outer)

        return call

    def _plain(self, name: str) -> Entry:
        """Return the entry of a function that returns a value and not a status."""
        if name == "cudnnGetVersion":
            return lambda _: self.face.number
        if name != "cudnnGetErrorString":
            function: Callable[..., Any] = getattr(cudnn, name)
            return lambda c: int(function(*c))
        names = self.face.names_of_statuses()

        def error_string(c: tuple[Any, ...]) -> int:
            text = names.get(c[0], "CUDNN_UNKNOWN_STATUS")
            return addressof(
                self.strings.get(text) or self.strings.setdefault(text, create_string_buffer(text.encode()))
            )

        return error_string

    def _missing(self, function: Function) -> Entry:
        """Return the entry of a function that is not implemented: it returns NOT_SUPPORTED, and prints a line on its
        first call."""
        text = f"{function.name}: CUDNN_STATUS_NOT_SUPPORTED: section {function.section} is not implemented yet"

        def call(_: tuple[Any, ...]) -> int:
            if function.name not in self.reported:
                self.reported.add(function.name)
                print(f"dualdnn: {text}", file=sys.stderr, flush=True)
            return self.refuse(NOT_SUPPORTED, text)

        return call

    def finish(self) -> None:
        """Print, at the end of a program with DUALDNN_MEMO=check, how many answers were compared."""
        counts = self.memo.counts()
        if counts["compared"]:
            print(
                "dualdnn memo: {compared} answers compared, {differ} differ".format(**counts),
                file=sys.stderr,
                flush=True,
            )


def create_handle() -> Handle:
    """Return a handle of the backend that DUALDNN_BACKEND names: reference (the default, on host memory), accelerated
    or crosscheck. An error is also printed, because the environment causes it and programs print a status at best."""
    try:
        if os.environ.get("DUALDNN_BACKEND", "reference") == "reference":
            alike = cudnn.cudnnCreate(backend="reference")  # It refuses what Python refuses.
            return Handle(pointer_backend(), alike.release, alike.reproducible)
        return cudnn.cudnnCreate()
    except CudnnError as error:
        print(f"dualdnn: {error}", file=sys.stderr, flush=True)
        raise


def install(ffi: Any, lib: Any, release: int) -> None:
    """Define every export of a release's face; this runs inside the library before its first call returns."""
    chosen = face(release)
    releases.act_by_default_as(chosen.release)
    border = _border(ffi, lib, chosen)
    ffi.def_extern(name="py_serve", error=chosen.status(INTERNAL_ERROR))(border.serve)
    ffi.def_extern(name="py_dualdnn_finish")(border.finish)
    launches = border.memo.launches
    for external, answer, failed in (
        ("launch", launches.launch, 1),
        ("scratch", launches.scratch_of, 0),
        ("fits", launches.fits, 0),
    ):
        ffi.def_extern(name=f"py_memo_{external}", error=failed)(answer)
    if border.is_replayed:
        replay.listen(border.memo.refresh)
        border.memo.refresh()
    if note := os.environ.get("DUALDNN_SERVED"):  # This file lists the processes that called the library.
        with open(note, "a", encoding="utf-8") as served:
            served.write(f"{os.getpid()}\n")
    lib.dualdnn_state = 1  # Exports return results from this point on.
    atexit.register(border.finish)


def _border(ffi: Any, lib: Any, chosen: Face) -> Border:
    """Return the border of this project's functions. With DUALDNN_BACKEND=observe:PATH, return the border of another
    library that the suite judges."""
    kind, _, path = os.environ.get("DUALDNN_BACKEND", "").partition(":")
    if kind != "observe":
        return Border(ffi, lib, chosen)
    observer: Border = import_module("dualdnn.conformance.programs.observer").Observer(ffi, lib, chosen, path)
    return observer
