"""Notice and undo a library's change of how this thread rounds, or of whether it keeps subnormal numbers.

The judge computes in the same thread. A library that was linked with ``-ffast-math`` changes both when it is loaded.
"""

from __future__ import annotations

import ctypes

LIBM = ctypes.CDLL("libm.so.6")
TO_NEAREST = LIBM.fegetround()  # This module is imported before any library is loaded.
DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV
MIN_DOUBLE = 5e-324  # The compiler of Python must not multiply it by ONE.
ONE = float("1")


def is_changed() -> bool:
    """Return whether results are rounded otherwise than to nearest, or subnormal ones become 0."""
    return MIN_DOUBLE * ONE == 0 or LIBM.fegetround() != TO_NEAREST


def restore() -> None:
    """Make this thread compute by the defaults of C."""
    LIBM.fesetenv(DEFAULT)
