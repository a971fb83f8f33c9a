"""Layers of small networks for compiled code: float32, rows in the first axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from zero_tune.ops.elementary import gelu
from zero_tune.ops.jit import regrouped

TILE = 4  # rows that ``affine`` takes at a time
_EPS = np.float32(1e-5)  # of nn.LayerNorm


@regrouped
def layer_norm(x: Any, scale: Any, shift: Any, out: Any) -> None:
    """``nn.LayerNorm`` of [rows, n]; ``out`` may be ``x``."""
    size = np.float32(x.shape[1])
    for r in range(len(x)):
        total = np.float32(0.0)
        for i in range(x.shape[1]):
            total += x[r, i]
        mean, square = total / size, np.float32(0.0)
        for i in range(x.shape[1]):
            square += (x[r, i] - mean) ** 2
        inverse = np.float32(1.0) / np.sqrt(square / size + _EPS)
        for i in range(x.shape[1]):
            out[r, i] = (x[r, i] - mean) * inverse * scale[i] + shift[i]


@regrouped
def affine(x: Any, weight: Any, bias: Any, out: Any) -> None:
    """``x @ weight + bias``, [rows, in], rows a multiple of ``TILE``, which share each read of a weight.

    The number of inputs is even.
    """
    width = weight.shape[1]
    for r in range(0, len(x), TILE):
        out0, out1, out2, out3 = out[r], out[r + 1], out[r + 2], out[r + 3]
        for j in range(width):
            out0[j] = out1[j] = out2[j] = out3[j] = bias[j]
        for k in range(0, len(weight) - 1, 2):  # two at a time: half as many stores
            first, second = weight[k], weight[k + 1]
            a0, a1, a2, a3 = x[r, k], x[r + 1, k], x[r + 2, k], x[r + 3, k]
            b0, b1, b2, b3 = x[r, k + 1], x[r + 1, k + 1], x[r + 2, k + 1], x[r + 3, k + 1]
            for j in range(width):
                w, v = first[j], second[j]
                out0[j] += a0 * w + b0 * v
                out1[j] += a1 * w + b1 * v
                out2[j] += a2 * w + b2 * v
                out3[j] += a3 * w + b3 * v


@regrouped
def gelu_(x: Any) -> None:
    """GELU in place, [rows, n]."""
    for r in range(len(x)):
        for i in range(x.shape[1]):
            x[r, i] = gelu(x[r, i])


@regrouped
def add_(x: Any, y: Any) -> None:
    """``x += y``, [rows, n]."""
    for r in range(len(x)):
        for i in range(x.shape[1]):
            x[r, i] += y[r, i]
