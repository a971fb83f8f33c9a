"""What a worker pool reports to the driver."""

from __future__ import annotations

from dataclasses import dataclass

from zero_tune.types import CollectResult, CollectTask, EvalResult, EvalTask, Snapshot

COLLECTOR, EVALUATOR = "collector", "evaluator"


@dataclass(frozen=True)
class CollectDone:
    """A collect came back."""

    worker: int
    task: CollectTask
    result: CollectResult


@dataclass(frozen=True)
class EvalDone:
    """An evaluation came back, with the very snapshot that was evaluated."""

    worker: int
    task: EvalTask
    snapshot: Snapshot
    result: EvalResult


@dataclass(frozen=True)
class WorkerLost:
    """A worker died, hung or failed; its task is lost. The driver decides whether to replace it."""

    worker: int
    kind: str  # COLLECTOR | EVALUATOR
    reason: str
    task: CollectTask | EvalTask | None = None
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class WorkerError:
    """An error that another worker would meet too (bad data, broken environment): fails the trial."""

    worker: int
    kind: str
    error: Exception


Event = CollectDone | EvalDone | WorkerLost | WorkerError
