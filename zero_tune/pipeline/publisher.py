"""Which weights collectors get, and when new ones are published."""

from __future__ import annotations

from zero_tune.interfaces import WorkerPool
from zero_tune.learning.learner import Learner
from zero_tune.types import Snapshot


class Publisher:
    """Publishes at most one snapshot per version, and only when a collect is launched.

    Args:
        sync_interval: publish when the version advanced by this much.
        max_lag: publish when the lag would exceed this; None or negative: no bound.
    """

    def __init__(
        self, learner: Learner, pool: WorkerPool, sync_interval: int, max_lag: int | None
    ) -> None:
        self._learner, self._pool = learner, pool
        self._interval = max(1, sync_interval)
        self._max_lag = None if max_lag is None or max_lag < 0 else max_lag
        self._current: Snapshot | None = None
        self.published_total = 0

    def due(self, version: int) -> bool:
        """Whether version ``version`` must be published before the next launch."""
        if self._current is None:
            return True
        behind = version - self._current.version
        if behind == 0:
            return False
        return behind >= self._interval or (self._max_lag is not None and behind > self._max_lag)

    def for_launch(self, envstep: int) -> Snapshot:
        """The snapshot a collect launched now runs with."""
        if self.due(self._learner.train_iter) or self._current is None:
            self._current = self.snapshot(envstep)
            self._pool.publish(self._current)
            self.published_total += 1
        return self._current

    def snapshot(self, envstep: int) -> Snapshot:
        """The learner's present weights; the published copy if it is the same version."""
        current = self._current
        if current is not None and current.version == self._learner.train_iter:
            return current
        return self._learner.snapshot(envstep)

    def reset(self) -> None:
        """Forget what was published (after other weights were loaded)."""
        self._current = None
