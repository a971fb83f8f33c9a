"""A binary tree over the rows: draws in proportion to their weights, and the largest live priority."""

from __future__ import annotations

import numba
import numpy as np

from zero_tune.types import Array


class SumTree:
    """Weights of ``capacity`` rows with O(log capacity) updates and draws.

    Heap layout: node 1 is the root, node i has children 2i and 2i+1, the leaf of row r is ``size + r``.
    Every inner node is recomputed as the sum of its two children, never adjusted by differences, so
    sums do not drift, do not depend on the order of updates, and are exactly 0 over rows of weight 0.
    A second heap holds the maximum of the rows' priorities.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._size = 1 << max(1, (capacity - 1).bit_length())
        self._sums = np.zeros(2 * self._size, np.float64)
        self._maxima = np.zeros(2 * self._size, np.float64)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._sums[1])

    @property
    def max_priority(self) -> float:
        """Largest priority among rows of positive weight, 0 if there are none."""
        return float(self._maxima[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._sums.nbytes + self._maxima.nbytes

    @property
    def weights(self) -> Array:
        """[capacity] f64, a read-only view of the rows' weights."""
        view = self._sums[self._size : self._size + self.capacity]
        view.flags.writeable = False
        return view

    def assign(self, rows: Array, weights: Array, priorities: Array) -> None:
        """Set weight and priority of ``rows`` [n]; of a repeated row the last entry counts."""
        _assign(self._sums, self._maxima, self._size, rows, weights, priorities)

    def remove(self, rows: Array) -> None:
        """Set the weight of ``rows`` [n] to exactly 0."""
        zeros = np.zeros(len(rows), np.float64)
        self.assign(rows, zeros, zeros)

    def rebuild(self, weights: Array, priorities: Array) -> None:
        """Replace every row's weight and priority, both [capacity]."""
        self.clear()
        self._sums[self._size : self._size + self.capacity] = weights
        self._maxima[self._size : self._size + self.capacity] = np.where(weights > 0, priorities, 0)
        level = self._size // 2
        while level >= 1:
            left = slice(2 * level, 4 * level, 2)
            right = slice(2 * level + 1, 4 * level, 2)
            self._sums[level : 2 * level] = self._sums[left] + self._sums[right]
            self._maxima[level : 2 * level] = np.maximum(self._maxima[left], self._maxima[right])
            level //= 2

    def clear(self) -> None:
        """Set every weight to 0."""
        self._sums[:] = 0
        self._maxima[:] = 0

    def find(self, fractions: Array) -> Array:
        """Rows [B] at these fractions, in [0, 1], of the cumulative weight.

        A row of weight 0 is never returned; the total must be positive.
        """
        return _find(self._sums, self._size, fractions * self._sums[1])


def draw_fractions(batch_size: int, rng: np.random.Generator, stratified: bool) -> Array:
    """[B] in [0, 1): independent, or one per equal stratum (Schaul et al. 2016, appendix B.2.1)."""
    uniform = rng.random(batch_size)
    return (np.arange(batch_size) + uniform) / batch_size if stratified else uniform


def importance_weights(probability: Array, count: int, beta: float) -> Array:
    """[B] f32, (count * probability) ^ -beta divided by the largest of the batch."""
    weights = (count * probability) ** -beta
    return (weights / weights.max()).astype(np.float32)


@numba.njit(cache=True, nogil=True)
def _assign(
    sums: Array, maxima: Array, size: int, rows: Array, weights: Array, priorities: Array
) -> None:
    for i in range(len(rows)):
        node = size + rows[i]
        sums[node] = weights[i]
        maxima[node] = priorities[i]
        node >>= 1
        while node:
            sums[node] = sums[2 * node] + sums[2 * node + 1]
            maxima[node] = max(maxima[2 * node], maxima[2 * node + 1])
            node >>= 1


@numba.njit(cache=True, nogil=True)
def _find(sums: Array, size: int, targets: Array) -> Array:
    rows = np.empty(len(targets), np.int64)
    for i in range(len(targets)):
        node, rest = 1, targets[i]
        while node < size:
            node *= 2
            # Rounding may leave rest at the end of an interval: never step into an empty half.
            if rest >= sums[node] and sums[node + 1] > 0.0:
                rest -= sums[node]
                node += 1
        rows[i] = node - size
    return rows
