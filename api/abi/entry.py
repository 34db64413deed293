"""The border between C and Python: one Python function behind every export, out of which no exception comes."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .. import cudnn
from ..document import Function, functions
from ..handle import Handle, release_named
from ..status import BAD_PARAM, INTERNAL_ERROR, NOT_SUPPORTED, CudnnError
from .c_types import RESULTS, destroys
from .marshalling import Marshalling
from .objects import Objects
from .pointers import pointer_backend


class Border:
    """What the exports of one library call; the last message of each thread."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.objects = ffi, Objects()
        self.marshalling = Marshalling(ffi, self.objects, lib)
        self.last = threading.local()
        self.shown = os.environ.get("DUALDNN_SHOW_ERRORS") == "1"
        self.strings: dict[int, Any] = {}  # what C was given has to stay where it is
        self.reported: set[str] = set()
        self.instead: dict[str, Callable[..., Any]] = {"cudnnCreate": create_handle}

    def refuse(self, status: int, text: str) -> int:
        """Remember why a call is refused; returns the status."""
        self.last.text = text
        if self.shown:
            print(text, file=sys.stderr, flush=True)
        return int(status)

    def export(self, function: Function, behind: Callable[..., Any]) -> None:
        """Let C call ``behind`` for a function."""
        error = None if function.name in RESULTS else int(INTERNAL_ERROR)
        self.ffi.def_extern(name=f"py_{function.name}", error=error)(behind)

    def first(self, function: Function) -> Callable[..., Any]:
        """What is behind an export until its first call: a program pays for the functions that it calls."""

        def call(*c: Any) -> Any:
            made = self.entry(function)
            self.export(function, made)
            return made(*c)

        return call

    def entry(self, function: Function) -> Callable[..., Any]:
        """The Python function behind an export."""
        if function.name in RESULTS:
            return self._plain(function.name)
        if not hasattr(cudnn, function.name):
            return self._missing(function)
        name, parameters, refuse = function.name, function.parameters, self.refuse
        body = self.instead.get(name) or getattr(cudnn, name)
        rules = self.marshalling
        readers = tuple(rules.reader(function, i) for i, p in enumerate(parameters) if not p.is_returned)
        returned = [i for i, p in enumerate(parameters) if p.is_returned]
        # (place of the value, of the argument, rule), the last first: arrays, which may be refused, before their counts.
        writers = tuple((k, i, rules.writer(function, i)) for k, i in reversed(list(enumerate(returned))))
        only = writers[0][2] if len(writers) == 1 else None
        required = tuple((i, p.name) for i, p in enumerate(parameters) if p.is_returned and not p.nullable)
        ends_objects = destroys(function)
        names = [p.name for p in parameters]
        paired = tuple((i, names.index(p.null_with), p.name) for i, p in enumerate(parameters) if p.null_with)

        def call(*c: Any) -> int:
            try:
                for i, output in required:
                    if not c[i]:
                        return refuse(
                            BAD_PARAM, f"{name}: CUDNN_STATUS_BAD_PARAM: {output} is NULL [cudnnStatus_t/c05]"
                        )
                for i, other, output in paired:
                    if bool(c[i]) != bool(c[other]):
                        text = f"{output} and {names[other]} are not both NULL, and not both given"
                        return refuse(BAD_PARAM, f"{name}: CUDNN_STATUS_BAD_PARAM: {text} [cudnnStatus_t/c05]")
                result = body(*[read(c) for read in readers])
                if only is not None:
                    if c[returned[0]]:
                        only(c, result)
                else:
                    for k, i, write in writers:
                        if c[i]:
                            write(c, result[k])
                if ends_objects:
                    for pointer in c[0][0 : c[1]] if len(c) > 1 else (c[0],):
                        self.objects.destroyed(pointer)
                return 0
            except CudnnError as error:
                return refuse(error.status, str(error))
            except BaseException:  # a mistake of ours, or an interrupt: C must get a status
                return refuse(INTERNAL_ERROR, f"{name}: CUDNN_STATUS_INTERNAL_ERROR: {traceback.format_exc()}")

        return call

    def _plain(self, name: str) -> Callable[..., Any]:
        """A function that returns a value, and no status."""
        if name != "cudnnGetErrorString":
            function: Callable[..., Any] = getattr(cudnn, name)
            return function

        def error_string(status: int) -> Any:
            if status not in self.strings:
                try:
                    text = cudnn.cudnnGetErrorString(status)  # type: ignore[arg-type]  # any int comes from C
                except CudnnError:
                    text = f"CUDNN_UNKNOWN_STATUS {status}"
                self.strings[status] = self.ffi.new("char[]", text.encode())
            return self.strings[status]

        return error_string

    def _missing(self, function: Function) -> Callable[..., int]:
        """What answers for a function that does not exist yet: NOT_SUPPORTED, and a line of its own the first time."""
        text = f"{function.name}: CUDNN_STATUS_NOT_SUPPORTED: section {function.section} is not implemented yet"

        def call(*_: Any) -> int:
            if function.name not in self.reported:
                self.reported.add(function.name)
                print(f"dualdnn: {text}", file=sys.stderr, flush=True)
            return self.refuse(NOT_SUPPORTED, text)

        return call

    def finish(self) -> None:
        """The program ends."""

    def last_error_string(self, place: Any, size: int) -> None:
        """cudnnGetLastErrorString: what the last refused call of this thread says, and then nothing."""
        text, self.last.text = getattr(self.last, "text", "").encode()[: max(0, size - 1)], ""
        if place and size:
            self.ffi.memmove(place, text + b"\0", len(text) + 1)


def create_handle() -> Handle:
    """A handle of the backend that DUALDNN_BACKEND names: reference (the default, on host memory), accelerated or crosscheck."""
    if os.environ.get("DUALDNN_BACKEND", "reference") == "reference":
        return Handle(pointer_backend(), release_named(None))
    return cudnn.cudnnCreate()


def install(ffi: Any, lib: Any) -> None:
    """Define every export; runs inside the library before its first call returns."""
    border = _border(ffi, lib)
    for function in functions().values():
        border.export(function, border.first(function))
    ffi.def_extern(name="cudnnGetLastErrorString")(border.last_error_string)
    ffi.def_extern(name="py_dualdnn_finish")(border.finish)
    lib.dualdnn_state = 1  # from here on results count
    atexit.register(border.finish)


def _border(ffi: Any, lib: Any) -> Border:
    """Our own functions, or with DUALDNN_BACKEND=observe:PATH those of another library, which the suite judges."""
    kind, _, path = os.environ.get("DUALDNN_BACKEND", "").partition(":")
    if kind != "observe":
        return Border(ffi, lib)
    observer: Border = import_module("dualdnn.conformance.observed").Observer(ffi, lib, path)
    return observer
