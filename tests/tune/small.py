"""Small trials for tests."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from zero_tune import checkpoint
from zero_tune.assembly import build_evaluator
from zero_tune.parsing import merge
from zero_tune.tune.trainable import SCORE
from zero_tune.types import EvalTask, Snapshot

SMALL: dict[str, Any] = {
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 2,
        "evaluator_env_num": 2,
        "n_evaluator_episode": 3,
        "eval_max_episode_steps": 60,
    },
    "policy": {
        "num_simulations": 3,
        "batch_size": 8,
        "game_segment_length": 10,
        "train_start_after_envsteps": 20,
        "td_steps": 3,
        "num_unroll_steps": 2,
        "update_per_collect": 6,
        "eval_freq": 12,
        "replay_buffer_size": 2000,
        "max_env_step": 400,
        "model": {"latent_state_dim": 16, "fc_hidden": 16, "proj_hid": 16, "pred_hid": 16},
        "async_pipeline": {"poll_interval_s": 0.02},
    },
    "iteration": {"min_time_s": 0},
}


def small(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """``SMALL`` with changes laid on top."""
    data = SMALL
    for change in changes:
        data = merge(data, change)
    logging.getLogger("ray").setLevel(logging.ERROR)
    return data


def assert_score_repeats(trainable: Any, row: Mapping[str, Any], folder: Path) -> None:
    """The row's score, the saved one, and a new evaluation of the saved weights are one to the bit."""
    trainable.save(str(folder))
    manifest, weights, score = checkpoint.read_evaluated(folder)
    assert score.policy_version == row["evaluation/snapshot_version"]
    assert score.reward_mean == row[SCORE] and manifest["train_iter"] == row["learners/train_iter"]
    evaluator = build_evaluator(trainable._config, trainable._env)
    evaluator.load(Snapshot(score.policy_version, score.envstep, weights))
    again = evaluator.evaluate(
        EvalTask(0, score.policy_version, score.train_iter, score.envstep, score.seeds)
    )
    assert again.episode_returns == score.episode_returns
    assert again.reward_mean == score.reward_mean


def gone(pids: Any) -> None:
    """Wait until none of the processes is left."""
    deadline = time.monotonic() + 10
    for pid in pids:
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline, f"process {pid} is still alive"
            time.sleep(0.05)


class Faulty(gym.Env[Any, Any]):
    """A NaN reward, an infinite observation, or a plain exception at step 25."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str = "reward") -> None:
        self.fault, self.t = fault, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        obs = np.full(3, np.inf if self.fault == "obs" and self.t == 25 else 0.5, np.float32)
        if self.fault == "raise" and self.t == 25:
            raise ValueError("the simulator crashed")
        reward = float("nan") if self.fault == "reward" and self.t == 25 else 1.0
        return obs, reward, self.t % 10 == 0, False, {}


gym.register("Faulty-v0", entry_point=Faulty)
