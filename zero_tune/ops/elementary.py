"""Elementary functions for compiled float32 loops, in forms that vectorise without a vector math library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.ops.jit import compiled

_LEAST, _LOG2_E, _LN_2 = np.float32(-87.0), np.float32(math.log2(math.e)), np.float32(math.log(2.0))
_BIAS, _MANTISSA = np.int32(127), np.int32(23)  # of a float32's exponent and fraction
_HALF, _ONE, _ROOT_HALF = np.float32(0.5), np.float32(1.0), np.float32(math.sqrt(0.5))


@compiled
def exp_below(x: Any) -> Any:
    """``exp(x)`` of a float32 x <= 0 to 3e-7 of itself; e^-87 from there on.

    2^n times a Taylor polynomial of 2^f, f in [-1/2, 1/2].
    """
    y = max(x, _LEAST) * _LOG2_E
    n = np.int32(y - _HALF)  # y <= 0: towards zero is up, hence the nearest integer
    f = (y - np.float32(n)) * _LN_2
    p = np.float32(1.0 / 720.0) * f + np.float32(1.0 / 120.0)
    p = p * f + np.float32(1.0 / 24.0)
    p = p * f + np.float32(1.0 / 6.0)
    p = p * f + _HALF
    p = p * f + _ONE
    p = p * f + _ONE
    return p * np.int32((n + _BIAS) << _MANTISSA).view(np.float32)


@compiled
def gelu(x: Any) -> Any:
    """``x (1 + erf(x / sqrt 2)) / 2`` of a float32 to 1e-6 (erf: Abramowitz and Stegun 1964, 7.1.26)."""
    size = abs(x)
    z = size * _ROOT_HALF
    t = _ONE / (_ONE + np.float32(0.3275911) * z)
    p = np.float32(1.061405429) * t - np.float32(1.453152027)
    p = p * t + np.float32(1.421413741)
    p = p * t - np.float32(0.284496736)
    p = p * t + np.float32(0.254829592)
    beyond = p * t * exp_below(-z * z)  # 1 - erf(z)
    return _HALF * (x + size * (_ONE - beyond))
