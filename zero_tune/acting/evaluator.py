"""Plays one greedy episode per seed; the same weights and seeds give the same scores to the bit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zero_tune.acting.agent import Agent
from zero_tune.config import Config
from zero_tune.ops.threads import torch_threads
from zero_tune.types import Array, EnvSpec, EvalResult, EvalTask, Snapshot

if TYPE_CHECKING:
    from zero_tune.envs.vector import EnvBatch


@dataclass
class _Episode:
    """Outcome of one seed."""

    score: float
    length: int
    truncated: bool


class EpisodeEvaluator:
    """See ``interfaces.Evaluator``."""

    def __init__(self, config: Config, env: EnvSpec, envs: EnvBatch, agent: Agent) -> None:
        self._stop_value = config.env.stop_value
        self._envs, self._agent, self._env = envs, agent, env

    def load(self, snapshot: Snapshot) -> None:
        """Use a snapshot's weights."""
        self._agent.load(snapshot)

    def evaluate(self, task: EvalTask) -> EvalResult:
        """One episode per seed of ``task``, all slots at work until the seeds run out."""
        start = time.perf_counter()
        with torch_threads(1):  # sums are then taken in the same order on every machine share
            episodes = self._play(task.seeds)
        scores = np.array([e.score for e in episodes], np.float64)
        mean = float(scores.mean())
        return EvalResult(
            policy_version=task.version,
            train_iter=task.train_iter,
            envstep=task.envstep,
            reward_mean=mean,
            reward_std=float(scores.std()),
            episode_returns=tuple(float(s) for s in scores),
            episode_lengths=tuple(e.length for e in episodes),
            seeds=task.seeds,
            stop=self._stop_value is not None and mean >= self._stop_value,
            seconds=time.perf_counter() - start,
            num_truncated=sum(e.truncated for e in episodes),
        )

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _play(self, seeds: tuple[int, ...]) -> list[_Episode]:
        count = self._envs.num_envs
        episodes: list[_Episode | None] = [None] * len(seeds)
        playing = np.full(count, -1)  # index of the seed each slot plays
        step = np.zeros(count, np.int64)
        waiting = list(range(len(seeds)))[::-1]
        self._start(np.arange(count)[: len(waiting)], seeds, waiting, playing, step)
        while (playing >= 0).any():
            stream = np.array([seeds[p] if p >= 0 else 0 for p in playing], np.int64)
            result = self._agent.act(stream, step, explore=False)
            slots = np.flatnonzero(playing >= 0)
            self._agent.history.set_action(slots, result.action[slots])
            outcome = self._envs.step(slots, result.action[slots])
            step[slots] += 1
            over = outcome.episode_over
            for row in np.flatnonzero(over):
                episodes[playing[slots[row]]] = _Episode(
                    float(outcome.episode_return[row]),
                    int(outcome.episode_length[row]),
                    bool(outcome.truncated[row]),
                )
            seen, on = outcome.observation, ~over
            if on.any():
                self._agent.observe(slots[on], seen.obs[on], seen.legal[on], seen.to_play[on])
            free = slots[over]
            playing[free] = -1
            self._start(free[: len(waiting)], seeds, waiting, playing, step)
        return [e for e in episodes if e is not None]

    def _start(
        self, slots: Array, seeds: tuple[int, ...], waiting: list[int], playing: Array, step: Array
    ) -> None:
        if not len(slots):
            return
        for slot in slots:
            playing[slot] = waiting.pop()
        step[slots] = 0
        first = self._envs.reset(slots, np.array([seeds[p] for p in playing[slots]]))
        self._agent.history.reset(slots)
        self._agent.observe(slots, first.obs, first.legal, first.to_play)
