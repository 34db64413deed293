"""Philox 4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011): the random words of dropout (docs/dropout.md)."""

from __future__ import annotations

import numpy as np

from .view import Array

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # what each round adds to the key
WORD = 0xFFFFFFFF
LOWER_BITS = 1 << 31  # of a sequence


def philox(counter: tuple[Array | int, Array | int, Array | int, Array | int], key: tuple[int, int]) -> Array:
    """Four random words for each counter, in the last dimension. counter, key: 32-bit words, the first of them the lowest."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c2 = (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0), (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & np.uint64(WORD), first & np.uint64(WORD)
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), -1).astype(np.uint32)


def words(seed: int, call: int, count: int, sequence: int = 0) -> Array:
    """The numbers of the first ``count`` elements of a call, of 32 bits. Eight have 16 bits each of the words of one counter (number, sequence,
    call), under the key ``seed``, as their upper bits, and those of another sequence as their lower ones."""
    numbers = np.arange(-(-count // 8), dtype=np.uint64)
    upper, lower = (
        philox((numbers, of_bits, call & WORD, call >> 32), (seed & WORD, seed >> 32))
        .reshape(-1)
        .astype("<u4")
        .view("<u2")
        for of_bits in (sequence, sequence | LOWER_BITS)
    )
    return (upper.astype(np.uint32) << np.uint32(16) | lower)[:count]
