"""Opens devices: a GPU, or the emulated device on the CPU."""

from __future__ import annotations

import threading

from dualdnn.api.operations.forks import free_in_children

from .device import Device
from .emulated.device import EmulatedDevice
from .errors import DeviceUnavailable
from .gpu import GpuDevice

_opening = free_in_children(threading.Lock())
_devices: dict[tuple[str, int], Device] = {}


def open_device(kind: str, index: int = 0) -> Device:
    """Return the device, the same object each time. Raises DeviceUnavailable, which says what is missing."""
    if kind not in ("gpu", "emulated"):
        raise ValueError(f"kind={kind!r}: expected 'gpu' or 'emulated'")
    with _opening:
        if (kind, index) not in _devices:
            _devices[kind, index] = GpuDevice(index) if kind == "gpu" else EmulatedDevice(index)
        return _devices[kind, index]


def gpu_is_usable() -> bool:
    """Return whether open_device("gpu") works here."""
    try:
        open_device("gpu")
    except DeviceUnavailable:
        return False
    return True
