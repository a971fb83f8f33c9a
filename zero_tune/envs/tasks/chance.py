"""ChanceMatch: look at what chance drew before acting on it."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from zero_tune.types import Array


class ChanceMatch(gym.Env[Array, int]):
    """T rounds; in each either take a safe +0.3, or draw one of C colours and then name it (+1 / -1).

    Actions: 0 safe, 1 draw, 2..C+1 name a colour; only the meaningful ones are legal. Observation
    [C + 2]: drawn colour one-hot, waiting flag, share of rounds left. The drawn colour is reported as
    chance label (C = nothing was drawn). Optimum 10.0 for T = 10; the best plan that cannot see the draw
    takes the safe reward each round: 3.0.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, C: int = 4, T: int = 10, safe: float = 0.3) -> None:
        self.colours, self.rounds, self.safe = C, T, safe
        self.chance_size = C + 1
        self.observation_space = gym.spaces.Box(0.0, 1.0, (C + 2,), np.float32)
        self.action_space = gym.spaces.Discrete(C + 2)
        self._colour, self._round = C, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Round 0, nothing drawn."""
        super().reset(seed=seed)
        self._colour, self._round = self.colours, 0
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One decision; a round ends with the safe reward or with a named colour."""
        action, reward = int(action), 0.0
        if action == 1:
            self._colour = int(self.np_random.integers(self.colours))
            return self._observe(), 0.0, False, False, self._info()
        if action == 0:
            reward = self.safe
        else:
            reward = 1.0 if action - 2 == self._colour else -1.0
        self._colour = self.colours
        self._round += 1
        return self._observe(), reward, self._round == self.rounds, False, self._info()

    def _info(self) -> dict[str, Any]:
        waiting = self._colour == self.colours
        mask = np.full(self.colours + 2, not waiting)
        mask[:2] = waiting
        return {"action_mask": mask, "chance": self._colour}

    def _observe(self) -> Array:
        obs = np.zeros(self.colours + 2, np.float32)
        obs[self._colour] = 1.0
        obs[self.colours + 1] = 1.0 - self._round / self.rounds
        return obs
