"""Catch: move a paddle under a falling ball; and its blind variant that needs memory."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from zero_tune.types import Array


class Catch(gym.Env[Array, int]):
    """A ball falls one row a step on a ``rows`` x ``columns`` screen; +1 if caught, -1 if missed.

    Observation (1, rows, columns) f32 with the ball and the paddle at 1. Actions: left, stay, right.
    Optimum 1.0 (the paddle can always reach the ball: columns <= rows); random -0.60 for 10 x 5.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    channel_layout = "channels_first"

    def __init__(self, rows: int = 10, columns: int = 5) -> None:
        self.rows, self.columns = rows, columns
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1, rows, columns), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self._ball_row = self._ball = self._paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Ball at a random column of the top row, paddle in the middle of the bottom row."""
        super().reset(seed=seed)
        self._ball_row, self._ball = 0, int(self.np_random.integers(self.columns))
        self._paddle = self.columns // 2
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move the paddle, drop the ball."""
        self._paddle = int(np.clip(self._paddle + int(action) - 1, 0, self.columns - 1))
        self._ball_row += 1
        over = self._ball_row == self.rows - 1
        reward = (1.0 if self._ball == self._paddle else -1.0) if over else 0.0
        return self._observe(), reward, over, False, {}

    def _ball_visible(self) -> bool:
        return True

    def _observe(self) -> Array:
        obs = np.zeros((1, self.rows, self.columns), np.float32)
        if self._ball_visible():
            obs[0, self._ball_row, self._ball] = 1.0
        obs[0, self.rows - 1, self._paddle] = 1.0
        return obs


class BlindCatch(Catch):
    """Catch where the ball is drawn in the first frame only.

    12 x 11 by default: 11 moves. Optimum 1.0 with memory; no memoryless policy can exceed -0.455, since
    it catches at most 3 of 11 columns (counting argument).
    """

    def __init__(self, rows: int = 12, columns: int = 11) -> None:
        super().__init__(rows, columns)

    def _ball_visible(self) -> bool:
        return self._ball_row == 0
