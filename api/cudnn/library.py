"""The library and its handle (3.2.5, 3.2.20)."""

from __future__ import annotations

from ..functions import documented
from ..handle import Handle, open_backend


def cudnnCreate(*, backend=None, device=None):
    """A handle.

    backend: "reference", "accelerated" or "crosscheck"; default from DUALDNN_BACKEND, else accelerated where a GPU is
        usable, else reference. device: "gpu" or "emulated" for the accelerated backend.
    Errors: NOT_INITIALIZED without a usable GPU (c12). Source: 3.2.5.
    """
    return Handle(open_backend(backend, device))


@documented(invalid={"handle": "c05"})
def cudnnDestroy(handle):
    """Wait for the handle's work, then release it. Errors: BAD_PARAM for NULL (c05). Source: 3.2.20."""
    handle.destroy()
