"""Measures device time on a stream, with graphs of repeated launches between events, so that host time is excluded.

On the emulated device the host's clock is used, because the work runs on the host.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

from .driver import CAPTURE_RELAXED, Driver
from .errors import DeviceError

HELD_SECONDS = (1e-4, 4e-4, 1.6e-3)  # seconds a stream is held, tried in order until the work was queued in time
_POINTER = ctypes.c_void_p
_SIGNATURES = {
    "cuEventCreate": (_POINTER, ctypes.c_uint),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventSynchronize": (_POINTER,),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
    "cuEventDestroy_v2": (_POINTER,),
    "cuStreamBeginCapture_v2": (_POINTER, ctypes.c_int),
    "cuStreamEndCapture": (_POINTER, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, ctypes.c_ulonglong),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphDestroy": (_POINTER,),
}

Work = Callable[[], None]


class Clock:
    """Measure the work that ``work()`` puts on ``stream``.

    hold: a function that occupies the stream for a number of seconds, so that the measured work is queued before it
    begins. Without it the result includes the host's time for launching, where that is longer than the work.
    """

    def __init__(self, device: Any, stream: Any, hold: Callable[[float], None] | None = None) -> None:
        self.device, self.stream, self.hold = device, stream, hold
        self.elapsed = 0.0
        self.driver: Driver | None = device.driver if device.kind == "gpu" else None
        if self.driver is not None:
            stream.require_waiting("measuring work")
            self.driver.require(_SIGNATURES)
            with device.entered():
                self.events = [made(self.driver, "cuEventCreate", 0) for _ in range(2)]

    def now(self) -> float:
        """Return the seconds that spend() has measured so far, as a clock to be read before and after some work."""
        return self.elapsed

    def spend(self, work: Work) -> None:
        """Run ``work()`` once and add its device time to the clock."""
        self.elapsed += self.seconds(work)

    def seconds(self, work: Work) -> float:
        """Return the device time of one ``work()`` in seconds.

        The work runs again, with a longer hold, where it was not queued before the stream was released.
        """
        if self.driver is None:
            begun = time.perf_counter()
            work()
            return time.perf_counter() - begun
        with self.device.entered():
            return self._device_seconds(work)

    def _device_seconds(self, work: Work) -> float:
        if self.hold is None:
            self._record(work)
            return self._recorded()
        for held in HELD_SECONDS:
            begun = time.perf_counter()
            self.hold(held)
            self._record(work)
            queued = time.perf_counter() - begun
            seconds = self._recorded()
            if queued < held:
                break
        return seconds

    def median(self, work: Work, repetitions: int = 10, rounds: int = 9) -> float:
        """Return the seconds of one ``work()``: the median of ``rounds`` graphs with ``repetitions`` each."""
        with self.repeated(work, repetitions) as graph:
            times = []
            for _ in range(rounds):
                graph()  # It runs while the host queues the graph that is measured.
                times.append(self.seconds(graph))
            return statistics.median(times) / repetitions

    def repeated(self, work: Work, repetitions: int) -> Graph:
        """Return a graph that repeats ``work()``, after one run for warming up."""
        work()
        self.stream.synchronize()
        return Graph(self.driver, self.stream, work, repetitions)

    def _record(self, work: Work) -> None:
        """Run ``work()`` between the two events."""
        assert self.driver is not None
        self.driver.call("cuEventRecord", self.events[0], self.stream.handle)
        work()
        self.driver.call("cuEventRecord", self.events[1], self.stream.handle)

    def _recorded(self) -> float:
        """Wait for the second event and return the seconds between the two."""
        assert self.driver is not None
        milliseconds = ctypes.c_float()
        self.driver.call("cuEventSynchronize", self.events[1])
        self.driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), *self.events)
        return milliseconds.value * 1e-3


class Graph:
    """Capture repeated launches from a stream and replay them when called; the emulated device runs them again."""

    def __init__(self, driver: Driver | None, stream: Any, work: Work, repetitions: int) -> None:
        self.driver, self.stream, self.work, self.repetitions = driver, stream, work, repetitions
        if driver is None:
            return
        driver.call("cuStreamBeginCapture_v2", stream.handle, CAPTURE_RELAXED)
        try:
            for _ in range(repetitions):
                work()
        finally:
            graph = made(driver, "cuStreamEndCapture", before=(stream.handle,))
        if not graph:
            raise DeviceError("the work cannot be captured in a graph")
        self.graph, self.executable = graph, made(driver, "cuGraphInstantiateWithFlags", graph, 0)

    def __call__(self) -> None:
        if self.driver is None:
            for _ in range(self.repetitions):
                self.work()
        else:
            self.driver.call("cuGraphLaunch", self.executable, self.stream.handle)

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        if self.driver is not None:
            self.driver.call("cuGraphExecDestroy", self.executable)
            self.driver.call("cuGraphDestroy", self.graph)


def made(driver: Driver, name: str, *arguments: Any, before: tuple[Any, ...] = ()) -> Any:
    """Return the handle that a driver function stores through its pointer argument."""
    stored = ctypes.c_void_p()
    driver.call(name, *before, ctypes.byref(stored), *arguments)
    return stored
