"""Which rows can be drawn, and how likely: prioritised replay (Schaul et al. 2016) over a row store."""

from __future__ import annotations

import numpy as np

from zero_tune.errors import NonFiniteError
from zero_tune.replay.storage import DRAWABLE, WAITING, RowStore
from zero_tune.replay.sum_tree import SumTree, draw_fractions, importance_weights
from zero_tune.replay.windows import Sample
from zero_tune.types import Array, Segment

#: Keeps every drawable row's probability, and every initial priority, above 0.
PRIORITY_EPS = 1e-6


class PrioritySampler:
    """Draws drawable rows with probability (p ^ alpha + 1e-6) / sum, every other row with exactly 0.

    Args:
        store: the rows; their priorities live in it.
        use_priority: False draws uniformly; every importance weight is then 1.
        alpha: exponent of the priorities.
        beta: exponent of the importance weights.
        max_priority_for_new: new rows get the largest live priority, not |search - network value|.
    """

    def __init__(
        self,
        store: RowStore,
        *,
        use_priority: bool,
        alpha: float,
        beta: float,
        max_priority_for_new: bool,
    ) -> None:
        self.use_priority, self.alpha, self.beta = use_priority, alpha, beta
        self.max_priority_for_new = max_priority_for_new
        self.tree = SumTree(store.capacity)
        self._store = store

    def activate(self, rows: Array) -> None:
        """Make those of ``rows`` that are waiting drawable."""
        ready = rows[self._store.status[rows] == WAITING]
        self._store.set_status(ready, DRAWABLE)
        self._refresh(ready)

    def remove(self, rows: Array) -> None:
        """Make sure that ``rows`` are not drawn."""
        self.tree.remove(rows)

    def rebuild(self) -> None:
        """Derive every weight from the store's status and priorities."""
        drawable = self._store.status == DRAWABLE
        weights = np.where(drawable, self._draw_weight(self._store.priority), 0.0)
        self.tree.rebuild(weights, self._store.priority)

    def initial_priority(self, segment: Segment) -> Array:
        """[L] f64 priorities of new rows."""
        if self.max_priority_for_new:
            largest = self.tree.max_priority if self._store.count(DRAWABLE) else 1.0
            return np.full(len(segment), largest, np.float64)
        gap = np.subtract(segment.root_value, segment.pred_value, dtype=np.float64)
        return np.asarray(np.abs(gap) + PRIORITY_EPS, np.float64)

    def sample(self, batch_size: int, rng: np.random.Generator, stratified: bool) -> Sample:
        """Draw with replacement; weights are (N p) ^ -beta / max over N drawable rows.

        Raises:
            ValueError: no row can be drawn.
        """
        count = self._store.count(DRAWABLE)
        if not count:
            raise ValueError("the buffer has no drawable row; ask can_sample() first")
        row = self.tree.find(draw_fractions(batch_size, rng, stratified))
        weight = importance_weights(self.probability(row), count, self.beta)
        return Sample(row, self._store.generation[row], weight)

    def probability(self, rows: Array) -> Array:
        """[...] f64 probability of each of ``rows`` in one draw."""
        total = self.tree.total
        weights = self.tree.weights[rows]
        return np.asarray(weights / total if total else weights, np.float64)

    def update(self, row: Array, generation: Array, priority: Array) -> int:
        """Set the priorities of rows that are still drawable in this generation; returns how many.

        Raises:
            NonFiniteError: a priority is NaN, infinite or negative.
        """
        priority = np.asarray(priority, np.float64)
        bad = ~(np.isfinite(priority) & (priority >= 0))
        if bad.any():
            raise NonFiniteError("priority", f"or negative, in a write-back: {priority[bad][0]}")
        store = self._store
        current = (store.generation[row] == generation) & (store.status[row] == DRAWABLE)
        rows = row[current]
        store.priority[rows] = priority[current]
        self._refresh(rows)
        return len(rows)

    def _refresh(self, rows: Array) -> None:
        # Read back, not passed on: of a repeated row the store has kept one priority, and so does the tree.
        priority = self._store.priority[rows]
        self.tree.assign(rows, self._draw_weight(priority), priority)

    def _draw_weight(self, priority: Array) -> Array:
        if not self.use_priority:
            return np.ones(len(priority), np.float64)
        return np.asarray(priority**self.alpha + PRIORITY_EPS, np.float64)
