"""Generate the random words of dropout (docs/dropout.md) by Philox 4x32-10.

Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

import numpy as np

from .view import Array

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key in each round
WORD = 0xFFFFFFFF
LOWER_BITS = 1 << 31  # bit of the sequence number that selects the lower halves


def philox(counter: tuple[Array | int, Array | int, Array | int, Array | int], key: tuple[int, int]) -> Array:
    """Return four random words for each counter, in the last dimension.

    Counter and key are 32-bit words, lowest first.
    """
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c2 = (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & np.uint64(WORD), first & np.uint64(WORD)
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), -1).astype(np.uint32)


def words(seed: int, call: int, count: int, sequence: int = 0) -> Array:
    """Return the 32-bit numbers of the first ``count`` elements of a call.

    The upper 16 bits of eight numbers are the words of one counter (number, sequence, call) under the key ``seed``. The
    lower 16 bits come from a second sequence.
    """
    numbers = np.arange(-(-count // 8), dtype=np.uint64)
    upper, lower = (
        philox((numbers, of_bits, call & WORD, call >> 32), (seed & WORD, seed >> 32))
        .reshape(-1)
        .astype("<u4")
        .view("<u2")
        for of_bits in (sequence, sequence | LOWER_BITS)
    )
    return (upper.astype(np.uint32) << np.uint32(16) | lower)[:count]
