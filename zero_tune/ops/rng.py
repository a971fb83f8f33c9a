"""Row generators: one uint64 of state per tree row, so that a row's draws do not depend on its batch.

The generator is splitmix64 (Steele, Lea and Flood 2014): the state advances by a constant and each
output is a bijective mix of it. Drawing happens in compiled code (``search.draws``).
"""

from __future__ import annotations

import numpy as np

from zero_tune.types import Array

GAMMA = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1


def mix64(x: Array) -> Array:
    """The splitmix64 output function, element by element on uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
    return x ^ (x >> np.uint64(31))


def row_generators(seed: int, stream: Array, step: Array) -> Array:
    """Fresh generator states [B] uint64, one per row.

    Args:
        seed: any integer; taken modulo 2**64.
        stream: [B] who draws, for example a stream id.
        step: [B] when it draws, for example the step number. (seed, stream, step) names a state.
    """
    with np.errstate(over="ignore"):
        state = mix64(np.full(1, (seed + GAMMA) & _MASK, np.uint64))
        for part in (stream, step):  # a chain, not a sum: swapped names must not meet
            name = np.atleast_1d(np.asarray(part)).astype(np.int64).view(np.uint64)
            state = mix64(state + (name + np.uint64(1)) * np.uint64(GAMMA))
    return np.ascontiguousarray(state)
