"""A learner side and workers that follow a script, so that a test can predict every count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.replay.segments import NUM_SLOTS, VECTOR, make_segment
from zero_tune.assembly import LearnerSide
from zero_tune.config import Config
from zero_tune.parsing import merge
from zero_tune.pipeline.driver import Driver
from zero_tune.pipeline.events import (
    COLLECTOR,
    EVALUATOR,
    CollectDone,
    EvalDone,
    Event,
    WorkerLost,
)
from zero_tune.presets import resolve
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import CollectResult, CollectTask, EvalResult, EvalTask, LossOutput, Snapshot

BASE: dict[str, Any] = {
    "env": {"collector_env_num": 1, "n_evaluator_episode": 2},
    "policy": {
        "batch_size": 4,
        "td_steps": 1,
        "num_unroll_steps": 1,
        "game_segment_length": 20,
        "train_start_after_envsteps": 0,
        "update_per_collect": 4,
        "eval_freq": 1000,
        "replay_buffer_size": 5000,
        "max_env_step": 100,
        "async_pipeline": {"poll_interval_s": 0.001},
    },
    "iteration": {"min_time_s": 0},
}


def make_config(*changes: Mapping[str, Any]) -> Config:
    """``BASE`` with changes to ``policy`` laid on top."""
    data = BASE
    for change in changes:
        data = merge(data, {"policy": change})
    return resolve(data, VECTOR)[0]


class ScriptedLearner:
    """Counts updates; its only weight is the number of updates."""

    history_length = 1

    def __init__(self) -> None:
        self.train_iter = 0
        self.snapshots = 0
        self.sampled: list[int] = []
        self.target_model = SimpleNamespace(recompute_pos_emb_diff_and_clear_cache=lambda: None)

    def update(self, batch: Any) -> LossOutput:
        self.sampled.append(int(batch.row.sum()))
        self.train_iter += 1
        metrics = {"grad_norm": 1.0, "lr": 0.1, "value_clipped_share": 0.0}
        return LossOutput(1.0, {"value": 1.0}, np.ones(len(batch.row), np.float32), metrics)

    def snapshot(self, envstep: int) -> Snapshot:
        self.snapshots += 1
        return Snapshot(self.train_iter, envstep, {"w": np.array([float(self.train_iter)])})

    def state_dict(self) -> dict[str, Any]:
        return {"train_iter": self.train_iter}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train_iter = state["train_iter"]


class ScriptedBatches:
    """Batches straight from the buffer."""

    def __init__(self, buffer: ReplayBuffer, size: int) -> None:
        self.buffer, self.size, self.rng = buffer, size, np.random.default_rng(0)

    def make(self) -> Any:
        sample = self.buffer.sample(self.size, self.rng)
        window = self.buffer.window(sample.row)
        return SimpleNamespace(
            row=sample.row, generation=sample.generation, policy_version=window.policy_version
        )

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]


class ScriptedReanalyzer:
    """Remembers after how many updates each pass was made."""

    def __init__(self, learner: ScriptedLearner) -> None:
        self.learner = learner
        self.passes: list[int] = []

    def run_pass(self) -> int:
        self.passes.append(self.learner.train_iter)
        return 10

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class ScriptedCollector:
    """One stream; a collect makes ``steps`` steps, every fourth one stays in an open segment."""

    def __init__(self, worker: int, incarnation: int, steps: int | Sequence[int] = 20) -> None:
        self.worker, self.stream = worker, (worker << 12) + incarnation
        self.steps = [steps] if isinstance(steps, int) else list(steps)
        self.collects = self.time = self.sent = 0
        self.version = -1

    def load(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version

    def collect(self, task: CollectTask) -> CollectResult:
        assert self.version == task.version
        steps = self.steps[self.collects % len(self.steps)]
        self.collects += 1
        self.time += steps
        length = self.time - self.sent - 1  # the newest step stays open
        segments = []
        if length > 0:
            segments = [make_segment(self.stream, 0, self.sent, length, version=task.version)]
            self.sent += length
        return CollectResult(
            segments, steps, [1.0], [steps], task.version, self.worker, 0.5, self.time - self.sent
        )

    def close(self) -> None:
        pass


class ScriptedEvaluator:
    """Scores a snapshot by its version; stops the trial from ``stop_at`` on."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        self.stop_at = stop_at
        self.weight = -1.0

    def load(self, snapshot: Snapshot) -> None:
        self.weight = float(snapshot.model_state["w"][0])

    def evaluate(self, task: EvalTask) -> EvalResult:
        score = self.weight
        n = len(task.seeds)
        return EvalResult(
            task.version,
            task.train_iter,
            task.envstep,
            score,
            0.0,
            (score,) * n,
            (1,) * n,
            task.seeds,
            score >= self.stop_at,
            0.1,
        )

    def close(self) -> None:
        pass


@dataclass
class _Job:
    kind: str
    worker: int
    task: Any
    snapshot: Snapshot
    wait: int


@dataclass
class ScriptedPool:
    """A task comes back after ``delay(kind, number of tasks so far)`` polls; ``lose`` says which never do."""

    delay: Callable[[str, int], int] = lambda kind, n: 3
    lose: Callable[[str, int], bool] = lambda kind, n: False
    num_collectors: int = 1
    num_evaluators: int = 1
    steps: int | Sequence[int] = 20
    stop_at: float = float("inf")
    jobs: list[_Job] = field(default_factory=list)
    log: list[tuple[str, int, int]] = field(default_factory=list)  # (kind, worker, version)
    respawned: list[tuple[str, int, int]] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    current: Snapshot | None = None

    def __post_init__(self) -> None:
        self.evaluator = ScriptedEvaluator(self.stop_at)
        self.invalidate(0)

    def invalidate(self, incarnation: int) -> None:
        self.jobs.clear()
        self.collectors = {
            i: ScriptedCollector(i, incarnation, self.steps) for i in range(self.num_collectors)
        }

    def _idle(self, kind: str, count: int) -> list[int]:
        busy = {j.worker for j in self.jobs if j.kind == kind}
        return [i for i in range(count) if i not in busy]

    def idle_collectors(self) -> list[int]:
        return self._idle(COLLECTOR, self.num_collectors)

    def idle_evaluators(self) -> list[int]:
        return self._idle(EVALUATOR, self.num_evaluators)

    def publish(self, snapshot: Snapshot) -> None:
        self.published.append(snapshot.version)
        self.current = snapshot

    def _submit(self, kind: str, worker: int, task: Any, snapshot: Snapshot | None) -> None:
        assert snapshot is not None and snapshot.version == task.version
        assert worker in self._idle(kind, 99)
        self.jobs.append(_Job(kind, worker, task, snapshot, self.delay(kind, len(self.log))))
        self.log.append((kind, worker, task.version))

    def submit_collect(self, worker: int, task: CollectTask) -> None:
        self._submit(COLLECTOR, worker, task, self.current)

    def submit_eval(self, worker: int, task: EvalTask, snapshot: Snapshot) -> None:
        self._submit(EVALUATOR, worker, task, snapshot)

    def poll(self, timeout_s: float) -> list[Event]:
        events: list[Event] = []
        for job in list(self.jobs):
            job.wait -= 1
            if job.wait > 0:
                continue
            self.jobs.remove(job)
            if self.lose(job.kind, len(self.log)):
                events.append(
                    WorkerLost(job.worker, job.kind, "scripted loss", job.task, job.snapshot)
                )
            elif job.kind == COLLECTOR:
                collector = self.collectors[job.worker]
                collector.load(job.snapshot)
                events.append(CollectDone(job.worker, job.task, collector.collect(job.task)))
            else:
                self.evaluator.load(job.snapshot)
                result = self.evaluator.evaluate(job.task)
                events.append(EvalDone(job.worker, job.task, job.snapshot, result))
        return events

    def respawn(self, worker: int, kind: str, incarnation: int) -> None:
        self.respawned.append((kind, worker, incarnation))
        if kind == COLLECTOR:
            self.collectors[worker] = ScriptedCollector(worker, incarnation, self.steps)

    def shutdown(self, timeout_s: float) -> None:
        self.jobs.clear()


def make_side(config: Config) -> LearnerSide:
    """A scripted learner over a real buffer."""
    policy = config.policy
    learner = ScriptedLearner()
    buffer = ReplayBuffer(
        VECTOR,
        capacity=policy.replay_buffer_size or 0,
        num_slots=NUM_SLOTS,
        num_unroll_steps=1,
        td_steps=1,
        use_priority=False,
    )
    batches = ScriptedBatches(buffer, policy.batch_size or 0)
    return LearnerSide(learner, buffer, batches, ScriptedReanalyzer(learner))  # type: ignore[arg-type]


def make_driver(pool: Any, *changes: Mapping[str, Any]) -> Driver:
    """A driver over scripted parts."""
    config = make_config(*changes)
    return Driver(config, make_side(config), pool)


def run(driver: Driver, limit: int = 1000) -> list[dict[str, Any]]:
    """All reports of a trial."""
    rows = []
    for _ in range(limit):
        rows.append(driver.iterate())
        if rows[-1]["done"]:
            return rows
    raise AssertionError(f"not done after {limit} iterations: {rows[-1]}")
