"""API logging (3.2.41, 3.2.79): severity mask, user callback, the built-in callback and its environment variables.

CUDNN_LOGINFO_DBG=1 switches the info channel on when the library is loaded; CUDNN_LOGDEST_DBG (stdout, stderr or a
file name) is where the built-in callback writes, nowhere while it is unset. Only the info channel reports calls, as the
document says; a kernel that fails on the device is reported as fatal, which no mask can switch off.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .descriptors import Descriptor
from .document import VERSION, Function, Parameter
from .enumerations import CUDNN_SEV_ERROR_EN, CUDNN_SEV_INFO_EN, CUDNN_SEV_WARNING_EN, ENUMERATIONS, cudnnSeverity_t

CHANNELS = CUDNN_SEV_ERROR_EN | CUDNN_SEV_WARNING_EN | CUDNN_SEV_INFO_EN
VERSION_NUMBER = VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]
MARKS = {cudnnSeverity_t.CUDNN_SEV_FATAL: "F", cudnnSeverity_t.CUDNN_SEV_INFO: "I"}

_STARTED = time.time()


@dataclass(frozen=True)
class cudnnDebug_t:
    """Metadata of one message: absolute time, time since start, stream, process, thread, handle."""

    cudnn_version: int
    cudnnStatus: int
    time_sec: int
    time_usec: int
    time_delta: int  # microseconds since the library was loaded
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


def log_call(function: Function, arguments: tuple[Any, ...]) -> None:
    """Report one call and its arguments on the info channel."""
    lines = [f"CuDNN (v{VERSION_NUMBER}) function {function.name}() called:"]
    lines += [f"    {p.name}: {_described(p, value)};" for p, value in zip(function.arguments, arguments, strict=False)]
    handle = arguments[0] if arguments and function.arguments[0].base_type == "cudnnHandle_t" else None
    _emit(cudnnSeverity_t.CUDNN_SEV_INFO, lines, handle, 0)


def log_fatal(function: Function, problem: str) -> None:
    """Report that the device failed; always emitted."""
    lines = [f"CuDNN (v{VERSION_NUMBER}) function {function.name}() failed:", f"    {problem}"]
    _emit(cudnnSeverity_t.CUDNN_SEV_FATAL, lines, None, 8)


def _described(parameter: Parameter, value: Any) -> str:
    if value is None:
        return f"location={parameter.memory}; addr=NULL"
    if parameter.memory == "device":
        return f"location=dev; addr={getattr(value, 'address', value)}"
    if parameter.base_type in ENUMERATIONS:
        member = value.name if isinstance(value, IntEnum) else "invalid"
        return f"type={parameter.base_type}; val={member} ({int(value) if isinstance(value, int) else value!r})"
    shown = value.spec if isinstance(value, Descriptor) else value
    return f"type={parameter.base_type}; val={shown!r}"


def _emit(severity: cudnnSeverity_t, lines: list[str], handle: Any, status: int) -> None:
    now = time.time()
    since = datetime.timedelta(seconds=int(now - _STARTED))
    days, rest = since.days, since.seconds
    stream = getattr(handle, "user_stream", None)
    pid, tid = os.getpid(), threading.get_native_id()
    backend = getattr(handle, "backend", None)
    stamp = datetime.datetime.fromtimestamp(now).isoformat()
    lines.append(f"Time: {stamp} ({days}d+{rest // 3600}h+{rest // 60 % 60}m+{rest % 60}s since start)")
    device = backend.description if backend is not None else "NULL"
    lines.append(f"Process={pid}; Thread={tid}; GPU={device}; Handle={_named(handle)}; StreamId={_named(stream)}.")
    metadata = cudnnDebug_t(
        VERSION_NUMBER, status, int(now), int(now % 1 * 1e6), int((now - _STARTED) * 1e6), handle, stream, pid, tid, 0
    )
    # Every line ends with a NUL, the message with two.
    message = "".join(f"{line}\0" for line in lines) + "\0"
    current = state
    if current.callback is not None:
        current.callback(severity, current.udata, metadata, message)
    else:
        _built_in(severity, message)


def _named(value: Any) -> str:
    return "NULL" if value is None else f"{id(value):#x}"


def _built_in(severity: cudnnSeverity_t, message: str) -> None:
    """Write the message where CUDNN_LOGDEST_DBG says."""
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
