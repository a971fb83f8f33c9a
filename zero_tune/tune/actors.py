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
        self._kind, self._config, self._env = kind, config, env
        self._number, self._incarnation, self._threads = number, incarnation, threads
        self._worker: Any = None
        self._version = -1

    def ready(self) -> int:
        """Build the worker; not done in the constructor, whose errors Ray hands on as text alone.

        Returns:
            The process id.
        """
        import torch

        from zero_tune.assembly import build_collector, build_evaluator

        if self._worker is None:
            torch.set_num_threads(self._config.policy.num_threads or self._threads)
            if self._kind == COLLECTOR:
                self._worker = build_collector(
                    self._config, self._env, self._number, self._incarnation
                )
            else:
                self._worker = build_evaluator(self._config, self._env, self._number)
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

    def _load(self, box: Box) -> None:
        version, refs = box
        if version != self._version:
            snapshot: Snapshot = ray.get(refs[0])
            self._worker.load(snapshot)
            self._version = version
