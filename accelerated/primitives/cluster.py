"""Clusters of blocks (the host side of primitives/cluster.cuh)."""

from __future__ import annotations

from typing import Any

CLUSTER_SIZES = (8, 16)  # blocks: what every GPU with clusters has, and what an H100 or H200 has
FIRST_ARCHITECTURE = 90


def has_clusters(device: Any) -> bool:
    """Return whether a device has thread block clusters: GPUs from compute capability 9.0 on, not the emulated
    device."""
    generation = device.architecture.removeprefix("sm_")
    return generation.isdigit() and int(generation) >= FIRST_ARCHITECTURE
