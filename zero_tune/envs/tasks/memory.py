"""MemoryCue: a cue, a delay, a question."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from zero_tune.types import Array


class MemoryCue(gym.Env[Array, int]):
    """One of C cues in the first observation, L blank steps, then a query step: +1 right, -1 wrong.

    Vector observation [C + 2]: cue one-hot, blank flag, query flag; with ``image`` the same numbers fill a
    1 x 3 x 3 image. Optimum 1.0; every memoryless policy scores 0 in expectation for C = 2.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, L: int = 4, C: int = 2, image: bool = False) -> None:
        self.length, self.cues, self.image = L, C, image
        shape = (1, 3, 3) if image else (C + 2,)
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)
        self.action_space = gym.spaces.Discrete(C)
        self._cue = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Draw a cue and show it."""
        super().reset(seed=seed)
        self._cue, self._step = int(self.np_random.integers(self.cues)), 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Only the action taken at the query counts."""
        query = self._step == self.length + 1
        self._step += 1
        reward = (1.0 if int(action) == self._cue else -1.0) if query else 0.0
        return self._observe(), reward, query, False, {}

    def _observe(self) -> Array:
        out = np.zeros(9 if self.image else self.cues + 2, np.float32)
        if self._step == 0:
            out[self._cue] = 1.0
        elif self._step == self.length + 1:
            out[self.cues + 1] = 1.0
        else:
            out[self.cues] = 1.0
        return out.reshape(1, 3, 3) if self.image else out
