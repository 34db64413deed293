"""States the most that the hardware can do: bytes and arithmetic per second, measured in the run or from the data
sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# These are dense peaks in operations per second of the SXM modules (NVIDIA's data sheets of H100 and H200).
HOPPER = {"half": 989.4e12, "bfloat16": 989.4e12, "tf32": 494.7e12, "float": 66.9e12}
DATA_SHEETS: dict[str, Mapping[str, float]] = {"H200": HOPPER, "H100": HOPPER}


@dataclass(frozen=True)
class Ceilings:
    """Holds the ceilings of one device.

    bandwidth: bytes per second of a copy, reads and writes counted. launch: seconds of an empty kernel among many in a
    graph. paces: operations per second by data type, from ``source``. small_copy: seconds of the shortest kernel that
    reads and writes a small tensor. launch_stream: seconds of an empty kernel among many that a program puts on a
    stream one by one. launch_alone: seconds of an empty kernel that overlaps with no other.
    """

    bandwidth: float
    launch: float
    paces: Mapping[str, float] = field(default_factory=dict)
    source: str | None = None
    small_copy: float | None = None
    launch_stream: float | None = None
    launch_alone: float | None = None

    def floor(self, nbytes: int, flops: int = 0, pace: str | None = None) -> float:
        """Return the seconds that no implementation of the direct sum can beat."""
        arithmetic = flops / self.paces[pace] if pace is not None and pace in self.paces else 0.0
        return max(nbytes / self.bandwidth, arithmetic, self.launch)

    def facts(self) -> dict[str, Any]:
        """Return the ceilings as benchmarks.json has them."""
        return {
            "copy_GBps": self.bandwidth / 1e9,
            "launch_us": self.launch * 1e6,
            "small_copy_us": microseconds(self.small_copy),
            "launch_stream_us": microseconds(self.launch_stream),
            "launch_alone_us": microseconds(self.launch_alone),
            "ceilings_TFLOPS": {name: pace / 1e12 for name, pace in self.paces.items()},
            "ceilings_source": self.source,
        }


def microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def data_sheet(device: str) -> tuple[Mapping[str, float], str | None]:
    """Return the paces of a device by its name, and the source of the figures; nothing for an unlisted
    device."""
    model = next((model for model in DATA_SHEETS if model in device), None)
    return (DATA_SHEETS[model], f"data sheet of {model}") if model else ({}, None)
