"""Random numbers for compiled code, from one uint64 state per row (see ``ops.rng``)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.ops.rng import GAMMA, MIX_1, MIX_2
from zero_tune.search.jit import compiled

_GAMMA, _MIX_1, _MIX_2 = np.uint64(GAMMA), np.uint64(MIX_1), np.uint64(MIX_2)
_S27, _S30, _S31, _S12 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(12)

_LEAST, _LOG2_E, _LN_2 = np.float32(-87.0), np.float32(math.log2(math.e)), np.float32(math.log(2.0))
_BIAS, _MANTISSA = np.int32(127), np.int32(23)  # of a float32's exponent and fraction


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
def exp_below(x: Any) -> Any:
    """``exp(x)`` of a float32 x <= 0 to 3e-6 of itself, in a form that loops vectorise; e^-87 from there on.

    2^n times a Taylor polynomial of 2^f, f in [-1/2, 1/2].
    """
    y = max(x, _LEAST) * _LOG2_E
    n = np.int32(y - np.float32(0.5))  # y <= 0: towards zero is up, hence the nearest integer
    f = (y - np.float32(n)) * _LN_2
    p = np.float32(1.0 / 120.0) * f + np.float32(1.0 / 24.0)
    p = p * f + np.float32(1.0 / 6.0)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1.0)
    p = p * f + np.float32(1.0)
    return p * np.int32((n + _BIAS) << _MANTISSA).view(np.float32)


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
