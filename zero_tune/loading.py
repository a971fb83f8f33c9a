"""Trained agents without Ray: load a checkpoint, act, repeat its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zero_tune import checkpoint
from zero_tune.assembly import build_agent, build_evaluator
from zero_tune.config import Config
from zero_tune.presets import resolve
from zero_tune.types import Array, EnvSpec, EvalResult, EvalTask, SearchResult, Snapshot


@dataclass(frozen=True)
class ActInfo:
    """What the search behind one action found."""

    visit_counts: Array  # [K]
    policy: Array  # [K] the search's improved policy
    value: float  # search value
    network_value: float
    q_values: Array  # [K], NaN where unvisited


class LoadedPolicy:
    """An evaluated snapshot, ready to act in one environment.

    The agent remembers what it saw of the present episode; call ``reset`` at each episode's start.
    """

    def __init__(self, config: Config, env: EnvSpec, snapshot: Snapshot, score: EvalResult) -> None:
        self.config, self.env, self.snapshot, self.score = config, env, snapshot, score
        self._agent = build_agent(config, env, seed=config.seed, num_slots=1)
        self._agent.load(snapshot)
        self._slot = np.zeros(1, np.int64)
        self._step = np.zeros(1, np.int64)
        self.reset()

    def reset(self) -> None:
        """The next observation starts an episode."""
        self._agent.history.reset(self._slot)

    def act(
        self,
        obs: Array,
        *,
        legal: Array | None = None,
        to_play: int = -1,
        explore: bool = False,
        temperature: float = 1.0,
    ) -> tuple[Array, ActInfo]:
        """Internal action [D] for the newest frame, and the search's statistics.

        Args:
            obs: one frame, channel first.
            legal: [A] bool; None: every action.
            to_play: 1 or 2 in two-player games.
            explore: sample with noise and ``temperature`` instead of taking the best action.
        """
        width = self.env.action.size if self.env.action.kind == "discrete" else 0
        mask = np.ones(width, bool) if legal is None else np.asarray(legal, bool)
        self._agent.observe(
            self._slot, np.asarray(obs)[None], mask[None], np.array([to_play], np.int8)
        )
        result: SearchResult = self._agent.act(
            self._slot, self._step, explore=explore, temperature=temperature
        )
        self._step += 1
        self._agent.history.set_action(self._slot, result.action)
        info = ActInfo(
            result.visit_counts[0],
            np.asarray(result.target.weights)[0],
            float(result.value[0]),
            float(result.root_value[0]),
            result.q_values[0],
        )
        return result.action[0], info

    def evaluate(self, seeds: tuple[int, ...] | None = None) -> EvalResult:
        """Score the snapshot; with the stored seeds (None) the stored score comes out to the bit."""
        evaluator = build_evaluator(self.config, self.env)
        try:
            evaluator.load(self.snapshot)
            task = EvalTask(
                0,
                self.snapshot.version,
                self.score.train_iter,
                self.score.envstep,
                seeds or self.score.seeds,
            )
            return evaluator.evaluate(task)
        finally:
            evaluator.close()


def load_policy(path: str | Path, env_id: Any = None) -> LoadedPolicy:
    """The evaluated snapshot of a checkpoint directory.

    Args:
        path: a directory written by the trainable or by ``zero-tune train``.
        env_id: the callable, where the environment was given as one.

    Raises:
        SnapshotMismatch: no checkpoint, no evaluated snapshot in it, or another format.
    """
    manifest, weights, score = checkpoint.read_evaluated(path)
    data: dict[str, Any] = manifest["config"]
    if env_id is not None:
        data = {**data, "env": {**data["env"], "env_id": env_id}}
    config, env = resolve(data)
    snapshot = Snapshot(score.policy_version, score.envstep, weights)
    return LoadedPolicy(config, env, snapshot, score)
