"""Clusters of blocks (the host side of primitives/cluster.cuh)."""

from __future__ import annotations

from typing import Any

CLUSTER_SIZES = (8, 16)  # blocks of a cluster: what every GPU with clusters has, and what some have
FIRST_ARCHITECTURE = 90


def has_clusters(device: Any) -> bool:
    """GPUs before compute capability 9.0 and the emulated device have none."""
    generation = device.architecture.removeprefix("sm_")
    return generation.isdigit() and int(generation) >= FIRST_ARCHITECTURE
