"""Small trials for tests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from zero_tune.parsing import merge

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
