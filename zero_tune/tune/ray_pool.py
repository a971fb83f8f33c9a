"""Workers as Ray actors inside the trial's placement group: the async pipeline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from zero_tune.config import Config
from zero_tune.errors import ResourceError, WorkerFailed, ZeroTuneError
from zero_tune.pipeline.events import (
    COLLECTOR,
    EVALUATOR,
    CollectDone,
    EvalDone,
    Event,
    WorkerError,
    WorkerLost,
)
from zero_tune.tune.actors import WorkerActor
from zero_tune.tune.resources import check_fits, child_bundle_index, init_ray
from zero_tune.types import CollectTask, EnvSpec, EvalTask, Snapshot


@dataclass
class _Job:
    """A task in flight."""

    kind: str
    worker: int
    task: CollectTask | EvalTask
    snapshot: Snapshot | None
    deadline: float


class RayPool:
    """See ``interfaces.WorkerPool``.

    Every actor is pinned to its bundle, since an unpinned one may take another's room. Actors are never
    restarted by Ray: that would hide the event and lose weights and environments anyway.
    """

    def __init__(self, config: Config, env: EnvSpec) -> None:
        self._config, self._env = config, env
        self._pipe = config.policy.async_pipeline
        self._group = ray.util.get_current_placement_group()
        self._names = [(COLLECTOR, i) for i in range(self._pipe.num_collector_actors)]
        self._names += [(EVALUATOR, i) for i in range(self._pipe.num_evaluator_actors)]
        self._actors: dict[tuple[str, int], Any] = {}
        self._incarnation: dict[tuple[str, int], int] = dict.fromkeys(self._names, 0)
        self._jobs: dict[Any, _Job] = {}
        self._starting: dict[Any, tuple[tuple[str, int], float]] = {}
        self._box: tuple[int, list[Any]] | None = None

    def start(self) -> None:
        """Make all actors at once and wait until every one is built.

        Raises:
            ResourceError: one did not start in time, naming its bundle.
            ZeroTuneError: one failed for a reason that others would meet too.
        """
        for name in self._names:
            self._spawn(name)
        while self._starting:
            for event in self._collect_started(0.5):
                if isinstance(event, WorkerError):
                    raise event.error
                if isinstance(event, WorkerLost):
                    raise WorkerFailed(f"{event.kind} {event.worker}: {event.reason}")

    def idle_collectors(self) -> Sequence[int]:
        """Collectors without a task."""
        return self._idle(COLLECTOR)

    def idle_evaluators(self) -> Sequence[int]:
        """Evaluators without a task."""
        return self._idle(EVALUATOR)

    def _idle(self, kind: str) -> list[int]:
        busy = {(j.kind, j.worker) for j in self._jobs.values()}
        busy |= {name for name, _ in self._starting.values()}
        return [
            number
            for k, number in self._names
            if k == kind and (k, number) not in busy and (k, number) in self._actors
        ]

    def publish(self, snapshot: Snapshot) -> None:
        """One copy in the object store per version; the older one is released."""
        self._box = (snapshot.version, [ray.put(snapshot)])

    def submit_collect(self, worker: int, task: CollectTask) -> None:
        """See ``interfaces.WorkerPool``."""
        assert self._box is not None and self._box[0] == task.version
        ref = self._actors[COLLECTOR, worker].collect.remote(self._box, task)
        limit = time.monotonic() + self._pipe.collect_timeout_s
        self._jobs[ref] = _Job(COLLECTOR, worker, task, None, limit)

    def submit_eval(self, worker: int, task: EvalTask, snapshot: Snapshot) -> None:
        """See ``interfaces.WorkerPool``."""
        box = self._box
        if box is None or box[0] != snapshot.version:
            box = (snapshot.version, [ray.put(snapshot)])
        ref = self._actors[EVALUATOR, worker].evaluate.remote(box, task)
        limit = time.monotonic() + self._pipe.eval_timeout_s
        self._jobs[ref] = _Job(EVALUATOR, worker, task, snapshot, limit)

    def poll(self, timeout_s: float) -> list[Event]:
        """Finished, failed and overdue work."""
        events: list[Event] = []
        if self._starting:
            events += self._collect_started(0.0 if self._jobs else min(timeout_s, 0.5))
        refs = list(self._jobs)
        if refs:
            ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s)
            if ready:
                ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
            events += [self._finish(ref) for ref in ready]
        elif not self._starting and timeout_s:
            time.sleep(timeout_s)
        now = time.monotonic()
        for ref, job in list(self._jobs.items()):
            if now > job.deadline:
                del self._jobs[ref]
                self._kill((job.kind, job.worker))
                reason = "its task took longer than the configured timeout"
                events.append(WorkerLost(job.worker, job.kind, reason, job.task, job.snapshot))
        return events

    def _finish(self, ref: Any) -> Event:
        job = self._jobs.pop(ref)
        try:
            result = ray.get(ref)
        except Exception as error:
            return self._failure(job, error)
        if isinstance(job.task, CollectTask):
            return CollectDone(job.worker, job.task, result)
        assert job.snapshot is not None
        return EvalDone(job.worker, job.task, job.snapshot, result)

    def _failure(self, job: _Job, error: Exception) -> Event:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ZeroTuneError):
            return WorkerError(job.worker, job.kind, cause)
        self._kill((job.kind, job.worker))
        shown = cause if isinstance(cause, Exception) else error
        reason = f"{type(shown).__name__}: {str(shown).splitlines()[0] if str(shown) else ''}"
        return WorkerLost(job.worker, job.kind, reason, job.task, job.snapshot)

    def respawn(self, worker: int, kind: str, incarnation: int) -> None:
        """A new actor in the same bundle."""
        name = (kind, worker)
        self._kill(name)
        self._incarnation[name] = incarnation
        self._spawn(name)

    def invalidate(self, incarnation: int) -> None:
        """Results in flight are dropped; collectors start over with fresh streams."""
        self._jobs.clear()
        self._box = None
        for name in list(self._actors):
            self._kill(name)
        self._starting.clear()
        for name in self._names:
            self._incarnation[name] = incarnation
            self._spawn(name)

    def shutdown(self, timeout_s: float) -> None:
        """Kill every actor; environments hold nothing that must be flushed."""
        self._jobs.clear()
        self._starting.clear()
        for name in list(self._actors):
            self._kill(name)
        self._box = None

    def pids(self) -> dict[tuple[str, int], int]:
        """Process ids of all actors."""
        refs = {name: actor.ready.remote() for name, actor in self._actors.items()}
        return {name: ray.get(ref) for name, ref in refs.items()}

    def _spawn(self, name: tuple[str, int]) -> None:
        kind, number = name
        pipe = self._pipe
        cpus = pipe.collector_num_cpus if kind == COLLECTOR else pipe.evaluator_num_cpus
        gpus = pipe.collector_num_gpus if kind == COLLECTOR else pipe.evaluator_num_gpus
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        if self._group is not None:
            index = child_bundle_index(
                self._names.index(name), len(self._names), len(self._group.bundle_specs)
            )
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, index, placement_group_capture_child_tasks=True
            )
        handle = (
            ray.remote(WorkerActor)
            .options(**options)
            .remote(
                kind, self._config, self._env, number, self._incarnation[name], max(1, int(cpus))
            )
        )
        self._actors[name] = handle
        limit = time.monotonic() + pipe.actor_start_timeout_s
        self._starting[handle.ready.remote()] = (name, limit)

    def _collect_started(self, timeout_s: float) -> list[Event]:
        refs = list(self._starting)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=timeout_s)
        events: list[Event] = []
        for ref in ready:
            (kind, number), _ = self._starting.pop(ref)
            try:
                ray.get(ref)
            except Exception as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, ZeroTuneError):
                    events.append(WorkerError(number, kind, cause))
                else:
                    self._kill((kind, number))
                    events.append(WorkerLost(number, kind, f"it did not start: {error}"))
        now = time.monotonic()
        for (kind, number), limit in self._starting.values():
            if now > limit:
                index = self._names.index((kind, number)) + 1
                raise ResourceError(
                    f"{kind} {number} (bundle {index}) did not start within "
                    f"policy.async_pipeline.actor_start_timeout_s = {self._pipe.actor_start_timeout_s}: "
                    "its bundle may be held by another process, or its environment takes too long to make"
                )
        return events

    def _kill(self, name: tuple[str, int]) -> None:
        actor = self._actors.pop(name, None)
        if actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(actor)


def start_ray_pool(config: Config, env: EnvSpec) -> RayPool:
    """A pool whose actors are all ready; starts a local Ray if there is none.

    Raises:
        ResourceError: the cluster can never hold the actors, or one did not start in time.
    """
    if not ray.is_initialized():
        init_ray()
    if ray.util.get_current_placement_group() is None:
        check_fits(config.policy.async_pipeline)
    pool = RayPool(config, env)
    try:
        pool.start()
    except BaseException:
        pool.shutdown(0.0)
        raise
    return pool
