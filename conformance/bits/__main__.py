"""Record hashes of this release for the cases of level release: ``python -m dualdnn.conformance.bits emulated`` (or gpu)."""

from __future__ import annotations

import json
import sys

from dualdnn.api import cudnn

from ..calls import Caller
from . import RECORDED, hash_of, recorded
from .operations import OVER_IMAGES, WITHIN_IMAGES

HASHED = ("forward-ALGO_IMPLICIT", "data-", "bias-", "pooling-")  # operations without library functions


def record(device: str) -> dict[str, dict[str, str]]:
    """Return the recorded hashes, with new ones of a device at level release."""
    handle = cudnn.cudnnCreate(backend="accelerated", device=device, reproducible="release")
    caller = Caller(cudnn, handle)
    operations = {**WITHIN_IMAGES, **OVER_IMAGES}
    found = {name: hash_of(caller, operations[name]) for name in operations if name.startswith(HASHED)}
    return recorded() | {handle.backend.planned_on.architecture: found}


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
