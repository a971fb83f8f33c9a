"""A pool that runs its workers in place: the sync pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from zero_tune.assembly import build_collector, build_evaluator
from zero_tune.config import Config
from zero_tune.interfaces import Collector, Evaluator
from zero_tune.pipeline.events import EVALUATOR, CollectDone, EvalDone, Event
from zero_tune.types import CollectTask, EnvSpec, EvalTask, Snapshot


class LocalPool:
    """See ``interfaces.WorkerPool``: work is done when it is submitted, its result waits for ``poll``.

    Args:
        make_collector: (number, incarnation) -> collector; made when first used.
        make_evaluator: number -> evaluator.
    """

    def __init__(
        self,
        make_collector: Callable[[int, int], Collector],
        make_evaluator: Callable[[int], Evaluator],
        num_collectors: int = 1,
        num_evaluators: int = 1,
    ) -> None:
        self._make_collector, self._make_evaluator = make_collector, make_evaluator
        self._collectors: dict[int, Collector] = {}
        self._evaluators: dict[int, Evaluator] = {}
        self._counts = (num_collectors, num_evaluators)
        self._incarnation: dict[int, int] = dict.fromkeys(range(num_collectors), 0)
        self._events: list[Event] = []
        self._snapshot: Snapshot | None = None

    def idle_collectors(self) -> Sequence[int]:
        """All of them, always."""
        return range(self._counts[0])

    def idle_evaluators(self) -> Sequence[int]:
        """All of them, always."""
        return range(self._counts[1])

    def publish(self, snapshot: Snapshot) -> None:
        """See ``interfaces.WorkerPool``."""
        self._snapshot = snapshot

    def submit_collect(self, worker: int, task: CollectTask) -> None:
        """Collect now."""
        if worker not in self._collectors:
            self._collectors[worker] = self._make_collector(worker, self._incarnation[worker])
        assert self._snapshot is not None and self._snapshot.version == task.version
        collector = self._collectors[worker]
        collector.load(self._snapshot)
        self._events.append(CollectDone(worker, task, collector.collect(task)))

    def submit_eval(self, worker: int, task: EvalTask, snapshot: Snapshot) -> None:
        """Evaluate now."""
        if worker not in self._evaluators:
            self._evaluators[worker] = self._make_evaluator(worker)
        evaluator = self._evaluators[worker]
        evaluator.load(snapshot)
        self._events.append(EvalDone(worker, task, snapshot, evaluator.evaluate(task)))

    def poll(self, timeout_s: float) -> list[Event]:
        """Results of everything submitted since the last call; never waits."""
        events, self._events = self._events, []
        return events

    def respawn(self, worker: int, kind: str, incarnation: int) -> None:
        """See ``interfaces.WorkerPool``; never called here, since workers in place are not lost."""
        if kind == EVALUATOR:
            self._evaluators.pop(worker).close()
            return
        self._collectors.pop(worker).close()
        self._incarnation[worker] = incarnation

    def invalidate(self, incarnation: int) -> None:
        """Drop results, and the environments whose streams the loaded state does not know."""
        self._events = []
        for collector in self._collectors.values():
            collector.close()
        self._collectors.clear()
        self._snapshot = None
        self._incarnation = dict.fromkeys(self._incarnation, incarnation)

    def shutdown(self, timeout_s: float) -> None:
        """Close every environment."""
        for collector in self._collectors.values():
            collector.close()
        for evaluator in self._evaluators.values():
            evaluator.close()
        self._collectors.clear()
        self._evaluators.clear()


def build_local_pool(config: Config, env: EnvSpec) -> LocalPool:
    """The pool of a sync trial."""
    pipe = config.policy.async_pipeline
    return LocalPool(
        partial(build_collector, config, env),
        partial(build_evaluator, config, env),
        pipe.num_collector_actors,
        pipe.num_evaluator_actors,
    )
