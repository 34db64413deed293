"""Implement API logging (3.2.41, 3.2.79): severity mask, user callback, built-in callback and its environment
variables.

CUDNN_LOGINFO_DBG=1 enables the info channel when the library is loaded. CUDNN_LOGDEST_DBG (stdout, stderr or a file
name) is the destination of the built-in callback, which writes nothing while it is unset. Only the info channel reports
calls, as the document says. A kernel that fails on the device is reported as fatal, which no mask can disable.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import operator
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from .descriptors import Descriptor
from .document import VERSION, Function, Parameter
from .enumerations import CUDNN_SEV_ERROR_EN, CUDNN_SEV_INFO_EN, CUDNN_SEV_WARNING_EN, ENUMERATIONS, cudnnSeverity_t
from .operations import replay

CHANNELS = CUDNN_SEV_ERROR_EN | CUDNN_SEV_WARNING_EN | CUDNN_SEV_INFO_EN
VERSION_NUMBER = VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]
MARKS = {cudnnSeverity_t(value): mark for value, mark in enumerate("FEWI")}
LEVELS = dict(zip(MARKS, (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO), strict=True))

_STARTED = time.monotonic()
_emitting = threading.local()


@dataclass(frozen=True)
class cudnnDebug_t:
    """Hold the metadata of one message: absolute time, time since start, stream, process, thread, handle."""

    cudnn_version: int
    cudnnStatus: int
    time_sec: int
    time_usec: int
    time_delta: int  # whole seconds since the library was loaded, as in the public header
    handle: Any
    stream: Any
    pid: int
    tid: int
    cudaDeviceId: int


Callback = Callable[[cudnnSeverity_t, Any, cudnnDebug_t, str], None]


@dataclass
class _State:
    mask: int
    udata: Any = None
    callback: Callback | None = None


state = _State(CUDNN_SEV_INFO_EN if os.environ.get("CUDNN_LOGINFO_DBG") == "1" else 0)
active = bool(state.mask & CUDNN_SEV_INFO_EN)


def configure(mask: int, udata: Any, callback: Callback | None) -> None:
    """Replace mask, user data and callback; bits that name no channel are dropped."""
    global state, active
    state = _State(mask & CHANNELS, udata, callback)
    active = bool(mask & CUDNN_SEV_INFO_EN)
    replay.changed()


def send_to_logging(logger: logging.Logger | str = "dualdnn", mask: int = CHANNELS) -> None:
    """Send the documented log to Python's ``logging``.

    Calls are logged as INFO, unsupported requests and their reasons as WARNING, device failures as CRITICAL. This
    replaces the callback, like cudnnSetCallback; ``cudnnSetCallback(0, None, None)`` ends it. Each record has the
    attribute ``cudnn``, the cudnnDebug_t of the message.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger

    def callback(severity: cudnnSeverity_t, _udata: Any, metadata: cudnnDebug_t, message: str) -> None:
        target.log(LEVELS[severity], "%s", message.rstrip("\0").replace("\0", "\n"), extra={"cudnn": metadata})

    configure(mask, None, callback)


def log_call(function: Function, arguments: tuple[Any, ...]) -> None:
    """Report one call and its arguments on the info channel."""
    if not getattr(_emitting, "now", False):  # Calls from a callback are not reported, to avoid endless recursion.
        _undisturbed(_log_call, function, arguments)


def _log_call(function: Function, arguments: tuple[Any, ...]) -> None:
    lines = [f"CuDNN (v{VERSION_NUMBER}) function {function.name}() called:"]
    lines += [f"    {p.name}: {_described(p, value)};" for p, value in zip(function.arguments, arguments, strict=False)]
    handle = arguments[0] if arguments and function.arguments[0].base_type == "cudnnHandle_t" else None
    _emit(cudnnSeverity_t.CUDNN_SEV_INFO, lines, handle, 0)


def log_fatal(function: Function, problem: str) -> None:
    """Report that the device failed; no mask suppresses it."""
    lines = [f"CuDNN (v{VERSION_NUMBER}) function {function.name}() failed:", f"    {problem}"]
    _undisturbed(_emit, cudnnSeverity_t.CUDNN_SEV_FATAL, lines, None, 8)


def log_graph(function: str, drawing: list[str]) -> None:
    """Report a new operation graph on the info channel, as the text of a drawing."""
    if not getattr(_emitting, "now", False):
        lines = [f"CuDNN (v{VERSION_NUMBER}) function {function}() made this graph:"]
        _undisturbed(_emit, cudnnSeverity_t.CUDNN_SEV_INFO, [*lines, *(f"    {line}" for line in drawing)], None, 0)


def log_unsupported(function: str, reasons: list[str]) -> None:
    """Report on the warning channel why a valid descriptor is not supported."""
    if state.mask & CUDNN_SEV_WARNING_EN and not getattr(_emitting, "now", False):
        lines = [f"CuDNN (v{VERSION_NUMBER}) function {function}() does not support this:"]
        _undisturbed(_emit, cudnnSeverity_t.CUDNN_SEV_WARNING, [*lines, *(f"    {why}" for why in reasons)], None, 9)


def _undisturbed(report: Callable[..., None], *arguments: Any) -> None:
    """Run a part of the log; write any exception to stderr, as ``logging`` does, and let the call continue."""
    _emitting.now = True
    try:
        report(*arguments)
    except Exception as error:
        reported = type(error), str(error), state.callback
        if getattr(_emitting, "reported", None) != reported:  # The same error is reported once.
            _emitting.reported = reported
            _show_lost(error)
    finally:
        _emitting.now = False


def _show_lost(error: Exception) -> None:
    """Print where the log failed; stderr may be closed or absent."""
    source = state.callback or f"CUDNN_LOGDEST_DBG={os.environ.get('CUDNN_LOGDEST_DBG')}"
    with contextlib.suppress(Exception):
        sys.stderr.write(f"dualdnn's log: this message is lost, and so are those that fail alike ({source})\n")
        traceback.print_exception(error, file=sys.stderr)


def _described(parameter: Parameter, value: Any) -> str:
    if value is None:
        return f"location={parameter.memory}; addr=NULL"
    if parameter.memory == "device":
        return f"location=dev; addr={getattr(value, 'address', value)}"
    if parameter.base_type in ENUMERATIONS:
        return f"type={parameter.base_type}; val={_enumerator_text(ENUMERATIONS[parameter.base_type], value)}"
    shown = value.spec if isinstance(value, Descriptor) else value
    return f"type={parameter.base_type}; val={_plain(shown)!r}"


def _plain(value: Any) -> Any:
    """Return numbers in the form in which the document shows them, whatever type holds them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist() if value.size <= 64 else value
    return [*map(_plain, value)] if isinstance(value, list | tuple) and len(value) <= 64 else value


def _enumerator_text(enumeration: type[IntEnum], value: Any) -> str:
    """Return the enumerator's name and number; the value may be an enumerator or an integer."""
    try:
        if isinstance(value, Enum) and type(value) is not enumeration:
            raise TypeError("an enumerator of another type")
        member = enumeration(operator.index(value))
        return f"{member.name} ({int(member)})"
    except Exception:
        return f"invalid ({value!r})"


def _emit(severity: cudnnSeverity_t, lines: list[str], handle: Any, status: int) -> None:
    now, elapsed = time.time(), int(time.monotonic() - _STARTED)
    since = datetime.timedelta(seconds=elapsed)
    days, rest = since.days, since.seconds
    stream = getattr(handle, "user_stream", None)
    pid, tid = os.getpid(), threading.get_native_id()
    backend = getattr(handle, "backend", None)
    stamp = datetime.datetime.fromtimestamp(now).isoformat()
    lines.append(f"Time: {stamp} ({days}d+{rest // 3600}h+{rest // 60 % 60}m+{rest % 60}s since start)")
    device = backend.description if backend is not None else "NULL"
    lines.append(f"Process={pid}; Thread={tid}; GPU={device}; Handle={_named(handle)}; StreamId={_named(stream)}.")
    metadata = cudnnDebug_t(VERSION_NUMBER, status, int(now), int(now % 1 * 1e6), elapsed, handle, stream, pid, tid, 0)
    # Every line ends with one NUL, and the message with two.
    message = "".join(f"{line}\0" for line in lines) + "\0"
    current = state
    if current.callback is not None:
        current.callback(severity, current.udata, metadata, message)
    else:
        _built_in(severity, message)


def _named(value: Any) -> str:
    return "NULL" if value is None else f"{id(value):#x}"


def _built_in(severity: cudnnSeverity_t, message: str) -> None:
    """Write the message to the destination in CUDNN_LOGDEST_DBG."""
    destination = os.environ.get("CUDNN_LOGDEST_DBG")
    if not destination:
        return
    mark = MARKS[severity]
    lines = message.rstrip("\0").split("\0")
    text = f"{mark}! {lines[0]}\n" + "".join(f"{mark.lower()}! {line}\n" for line in lines[1:]) + "\n"
    if destination in ("stdout", "stderr"):
        getattr(sys, destination).write(text)
        return
    with open(destination, "a", encoding="utf-8") as file:
        file.write(text)
