"""Random numbers for compiled code, from one uint64 state per row (see ``ops.rng``)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.ops.jit import compiled
from zero_tune.ops.rng import GAMMA, MIX_1, MIX_2

_GAMMA, _MIX_1, _MIX_2 = np.uint64(GAMMA), np.uint64(MIX_1), np.uint64(MIX_2)
_S27, _S30, _S31, _S12 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(12)


@compiled
def uniform(rng: Any, b: int) -> float:
    """A float64 strictly between 0 and 1."""
    rng[b] += _GAMMA
    z = rng[b]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    z = z ^ (z >> _S31)
    return (np.float64(z >> _S12) + 0.5) * 2.0**-52


@compiled
def normal_pair(rng: Any, b: int) -> tuple[Any, Any]:
    """Two independent standard normal deviates, float32 (Box and Muller 1958)."""
    radius = math.sqrt(np.float32(-2.0) * math.log(np.float32(uniform(rng, b))))
    angle = np.float32(2.0 * math.pi) * np.float32(uniform(rng, b))
    return radius * math.cos(angle), radius * math.sin(angle)


@compiled
def gumbel(u: float) -> float:
    """A standard Gumbel deviate from a uniform one."""
    return -math.log(-math.log(u))


@compiled
def log_gamma_deviate(rng: Any, b: int, shape: float) -> float:
    """Logarithm of a Gamma(shape, 1) deviate (Marsaglia and Tsang 2000).

    In logs, because a shape of a few hundredths gives values below the smallest float.
    """
    boost = 0.0
    if shape < 1.0:
        boost = math.log(uniform(rng, b)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x, _ = normal_pair(rng, b)
        v = (1.0 + c * x) ** 3
        if v <= 0.0:
            continue
        if math.log(uniform(rng, b)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return math.log(d * v) + boost
