"""A batch of environment slots, stepped one subset at a time; no automatic reset, so no phantom step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zero_tune.envs.adapter import Reading, SlotEnv
from zero_tune.types import Array, EnvSpec


@dataclass(frozen=True)
class Observation:
    """What n slots see now."""

    obs: Array  # [n, *frame]
    legal: Array  # [n, A] bool, width 0 for continuous actions
    to_play: Array  # [n] i8


@dataclass(frozen=True)
class StepResult:
    """One step of n slots."""

    observation: Observation  # the real final one where an episode ended
    reward: Array  # [n] f32, as the learner sees it
    terminated: Array  # [n] bool
    truncated: Array  # [n] bool
    chance: Array  # [n] i32, -1 unknown
    episode_over: Array  # [n] bool: the whole game ended (a lost life does not end it)
    episode_return: Array  # [n] f64 raw return of the whole game so far
    episode_length: Array  # [n] i64


class EnvBatch(Protocol):
    """What collectors and evaluators step."""

    spec: EnvSpec
    num_envs: int

    def reset(self, slots: Array, seeds: Array | None = None) -> Observation:
        """Start new episodes in ``slots``; with ``seeds`` from those seeds."""

    def step(self, slots: Array, actions: Array) -> StepResult:
        """Advance ``slots`` by internal actions [n, D]. Ended slots must be reset by the caller."""

    def close(self) -> None:
        """Close every environment."""


class SlotBatch:
    """Independent environments, one per slot.

    Args:
        factory: makes one adapted environment.
        worker_seed: slot i's first reset uses ``worker_seed + i``; later ones go on from there.
    """

    def __init__(self, factory: Callable[[], SlotEnv], num_envs: int, worker_seed: int) -> None:
        self._envs = [factory() for _ in range(num_envs)]
        self._seeds: list[int | None] = [worker_seed + i for i in range(num_envs)]
        self.num_envs = num_envs
        self.spec = self._envs[0].spec

    def reset(self, slots: Array, seeds: Array | None = None) -> Observation:
        """See ``EnvBatch``."""
        readings = []
        for row, slot in enumerate(slots):
            seed = self._seeds[slot] if seeds is None else int(seeds[row])
            self._seeds[slot] = None
            readings.append(self._envs[slot].reset(seed))
        return self._observation(readings)

    def step(self, slots: Array, actions: Array) -> StepResult:
        """See ``EnvBatch``."""
        steps = [self._envs[slot].step(actions[row]) for row, slot in enumerate(slots)]
        return StepResult(
            self._observation([s.reading for s in steps]),
            np.array([s.reward for s in steps], np.float32),
            np.array([s.terminated for s in steps], bool),
            np.array([s.truncated for s in steps], bool),
            np.array([s.reading.chance for s in steps], np.int32),
            np.array([s.episode_over for s in steps], bool),
            np.array([s.episode_return for s in steps], np.float64),
            np.array([s.episode_length for s in steps], np.int64),
        )

    def close(self) -> None:
        """See ``EnvBatch``."""
        for env in self._envs:
            env.close()

    def _observation(self, readings: list[Reading]) -> Observation:
        return Observation(
            np.stack([r.obs for r in readings]),
            np.stack([r.legal for r in readings]),
            np.array([r.to_play for r in readings], np.int8),
        )
