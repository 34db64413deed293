"""Clusters of blocks (the host side of primitives/cluster.cuh)."""

from __future__ import annotations

from typing import Any

from ..runtime.device import reaches

CLUSTER_SIZES = (8, 16)  # blocks: what every GPU with clusters has, and what an H100 or H200 has
CLUSTER_CAPABILITY = 90


def has_clusters(device: Any) -> bool:
    """Return whether a device has thread block clusters: GPUs from compute capability 9.0 on, not the emulated
    device."""
    return device.kind == "gpu" and reaches(device, CLUSTER_CAPABILITY)
