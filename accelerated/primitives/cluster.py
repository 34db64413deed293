"""Describes clusters of blocks (the host side of primitives/cluster.cuh)."""

from __future__ import annotations

from typing import Any

from ..runtime.device import reaches

CLUSTER_SIZES = (8, 16)  # blocks per cluster: on every GPU with clusters, and on an H100 or H200
CLUSTER_CAPABILITY = 90


def has_clusters(device: Any) -> bool:
    """Return whether a device has thread block clusters: a GPU from compute capability 9.0 on, but not the emulated
    device."""
    return device.kind == "gpu" and reaches(device, CLUSTER_CAPABILITY)
