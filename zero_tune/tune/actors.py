"""What runs inside a collector or evaluator actor."""

from __future__ import annotations

import os
from typing import Any

import ray

from zero_tune.config import Config
from zero_tune.pipeline.events import COLLECTOR
from zero_tune.types import CollectResult, CollectTask, EnvSpec, EvalResult, EvalTask, Snapshot

#: Version and a list with one ObjectRef: a nested reference is fetched only when the version is new.
Box = tuple[int, list[Any]]


class WorkerActor:
    """Hosts one collector or evaluator.

    Args:
        threads: torch threads, the actor's CPU share (at least 1).
    """

    def __init__(
        self, kind: str, config: Config, env: EnvSpec, number: int, incarnation: int, threads: int
    ) -> None:
        import torch

        from zero_tune.assembly import build_collector, build_evaluator

        torch.set_num_threads(config.policy.num_threads or threads)
        self._worker: Any
        if kind == COLLECTOR:
            self._worker = build_collector(config, env, number, incarnation)
        else:
            self._worker = build_evaluator(config, env, number)
        self._version = -1

    def ready(self) -> int:
        """The process id, once everything is built."""
        return os.getpid()

    def collect(self, box: Box, task: CollectTask) -> CollectResult:
        """One collect with the boxed weights."""
        self._load(box)
        result: CollectResult = self._worker.collect(task)
        return result

    def evaluate(self, box: Box, task: EvalTask) -> EvalResult:
        """One evaluation of the boxed weights."""
        self._load(box)
        result: EvalResult = self._worker.evaluate(task)
        return result

    def num_threads(self) -> int:
        """Torch threads of this process."""
        import torch

        return torch.get_num_threads()

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()

    def _load(self, box: Box) -> None:
        version, refs = box
        if version != self._version:
            snapshot: Snapshot = ray.get(refs[0])
            self._worker.load(snapshot)
            self._version = version
