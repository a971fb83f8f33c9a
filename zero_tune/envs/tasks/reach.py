"""PointReach: continuous control whose optimum is a formula."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from zero_tune.types import Array

STEPS, SPEED, COST = 20, 0.2, 0.01


class PointReach(gym.Env[Array, Array]):
    """Move a point to the origin: x <- clip(x + 0.2 a, -1, 1), reward -|x'| - 0.01 |a|^2, 20 steps.

    Observation [d] position, start uniform in [-1, 1]^d; action [d] in [-1, 1]. For d = 1 the optimum from
    x0 is to close the distance at full speed: with n = floor(|x0| / 0.2) full steps and a rest
    r = |x0| - 0.2 n, the return is -sum_{k=1..n} (|x0| - 0.2 k + 0.01) - 0.01 (r / 0.2)^2
    (``optimal_return``); a shorter last move costs more distance than it saves.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, d: int = 1) -> None:
        self.dim = d
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (d,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (d,), np.float32)
        self._x = np.zeros(d)
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """A uniform start."""
        super().reset(seed=seed)
        self._x, self._step = self.np_random.uniform(-1.0, 1.0, self.dim), 0
        return self._x.astype(np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move; the episode is cut (truncated) after 20 steps."""
        move = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self._x = np.clip(self._x + SPEED * move, -1.0, 1.0)
        self._step += 1
        reward = -float(np.linalg.norm(self._x)) - COST * float(move @ move)
        return self._x.astype(np.float32), reward, False, self._step == STEPS, {}


def optimal_return(x0: float) -> float:
    """Best return from start ``x0`` for d = 1."""
    distance = abs(x0)
    full = int(distance / SPEED + 1e-9)
    total = -sum(distance - SPEED * k + COST for k in range(1, full + 1))
    return total - COST * ((distance - SPEED * full) / SPEED) ** 2
