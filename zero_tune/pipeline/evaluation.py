"""When evaluations are due, and which snapshot each one scored."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from zero_tune.interfaces import WorkerPool
from zero_tune.pipeline.events import EvalDone
from zero_tune.types import EvalResult, EvalTask, Snapshot


@dataclass(frozen=True)
class Evaluated:
    """A snapshot and its own score."""

    snapshot: Snapshot
    result: EvalResult


@dataclass(frozen=True)
class Report:
    """What one report says of evaluations."""

    latest: Evaluated | None
    is_new: bool  # first reported now
    improved: bool  # better than all before


class Evaluations:
    """Launches, requeues and collects evaluations.

    Args:
        freq: updates between evaluations.
        at_start: evaluate version 0.
        seeds: of the episodes, the same each time.
        most: evaluations in flight.
    """

    def __init__(
        self, pool: WorkerPool, freq: int, at_start: bool, seeds: tuple[int, ...], most: int
    ) -> None:
        self._pool, self._freq, self._seeds, self._most = pool, freq, seeds, most
        self.last_iter: int | None = None if at_start else 0
        self._at_start = at_start
        self._requested_version = -1
        self._waiting: deque[tuple[EvalTask, Snapshot]] = deque()
        self._inflight = 0
        self._next_id = 0
        self.arrived: deque[Evaluated] = deque()
        self.latest: Evaluated | None = None
        self.best = float("-inf")
        self.total = 0

    @property
    def awaits_first(self) -> bool:
        """Whether the evaluation of the initial weights is still to come."""
        return self._at_start and self.latest is None and not self.arrived

    @property
    def pending(self) -> int:
        """Evaluations that were asked for and have not come back."""
        return self._inflight + len(self._waiting)

    def due(self, train_iter: int) -> bool:
        """Whether the schedule asks for one now."""
        if self.pending >= self._most:
            return False
        return self.last_iter is None or train_iter - self.last_iter >= self._freq

    def covers(self, version: int) -> bool:
        """Whether ``version`` was evaluated or is about to be."""
        return self._requested_version == version

    def request(self, snapshot: Snapshot, envstep: int) -> None:
        """Ask for an evaluation of exactly ``snapshot``."""
        task = EvalTask(self._next_id, snapshot.version, snapshot.version, envstep, self._seeds)
        self._next_id += 1
        self.last_iter = self._requested_version = snapshot.version
        self._waiting.append((task, snapshot))
        self.launch()

    def requeue(self, task: EvalTask, snapshot: Snapshot) -> None:
        """The evaluator was lost: the same snapshot is evaluated by another."""
        self._inflight -= 1
        self._waiting.appendleft((task, snapshot))

    def launch(self) -> None:
        """Give waiting evaluations to idle evaluators."""
        for worker in list(self._pool.idle_evaluators()):
            if not self._waiting or self._inflight >= self._most:
                return
            task, snapshot = self._waiting.popleft()
            self._inflight += 1
            self._pool.submit_eval(worker, task, snapshot)

    def absorb(self, event: EvalDone) -> None:
        """Take in a result."""
        self._inflight -= 1
        self.total += 1
        self.arrived.append(Evaluated(event.snapshot, event.result))

    def report(self) -> Report:
        """The next evaluation that has arrived, or the last one again."""
        if not self.arrived:
            return Report(self.latest, False, False)
        self.latest = self.arrived.popleft()
        improved = self.latest.result.reward_mean > self.best
        self.best = max(self.best, self.latest.result.reward_mean)
        return Report(self.latest, True, improved)

    def state_dict(self) -> dict[str, Any]:
        """Plain Python; evaluations in flight are not part of it."""
        return {"best": self.best, "total": self.total, "next_id": self._next_id}

    def load_state_dict(self, state: dict[str, Any], latest: Evaluated | None) -> None:
        """Continue after ``latest``; work in flight and unreported results are dropped."""
        self._waiting.clear()
        self.arrived.clear()
        self._inflight = 0
        self.best, self.total = float(state["best"]), int(state["total"])
        self._next_id = int(state["next_id"])
        self.latest = latest
        if latest is None:
            self.last_iter, self._requested_version = (None if self._at_start else 0), -1
        else:
            self.last_iter = self._requested_version = latest.snapshot.version
