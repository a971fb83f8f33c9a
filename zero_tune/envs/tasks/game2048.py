"""2048 on small boards, where the optimum is known."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from zero_tune.types import Array


def slide(row: list[int]) -> tuple[list[int], int]:
    """A row of exponents pushed to the left, and the value merged."""
    tiles = [x for x in row if x]
    out, gained, i = [], 0, 0
    while i < len(tiles):
        if i + 1 < len(tiles) and tiles[i] == tiles[i + 1]:
            out.append(tiles[i] + 1)
            gained += 2 ** (tiles[i] + 1)
            i += 2
        else:
            out.append(tiles[i])
            i += 1
    return out + [0] * (len(row) - len(out)), gained


def move_board(board: Array, action: int) -> tuple[Array, int]:
    """Board of exponents after ``action`` (0 left, 1 up, 2 right, 3 down), and the value merged."""
    turned = np.rot90(board, action)
    rows = [slide(list(map(int, row))) for row in turned]
    gained = sum(g for _, g in rows)
    return np.rot90(np.array([r for r, _ in rows], board.dtype), -action), gained


class MiniGame2048(gym.Env[Array, int]):
    """2048 on an R x C board: reward = value merged; moves that change nothing are illegal.

    A 2 (probability 0.9) or a 4 appears on a random empty cell after each move; its place and kind is the
    chance label (2 * cell + kind). Observation (16, R, C) one-hot exponents. Optimal mean return, by
    dynamic programming: 67.0 on 2x2 (random 19.7), 480.3 on 2x3 (random 61.2).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    channel_layout = "channels_first"
    planes = 16

    def __init__(self, R: int = 2, C: int = 2) -> None:
        self.chance_size = 2 * R * C
        self.observation_space = gym.spaces.Box(0.0, 1.0, (self.planes, R, C), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self.board = np.zeros((R, C), np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Two tiles on an empty board."""
        super().reset(seed=seed)
        self.board[...] = 0
        self._spawn()
        label = self._spawn()
        return self._observe(), self._info(label)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Slide, merge, spawn; over when no move changes the board."""
        self.board, gained = move_board(self.board, int(action))
        self.board = np.ascontiguousarray(self.board)
        info = self._info(self._spawn())
        return self._observe(), float(gained), not info["action_mask"].any(), False, info

    def _spawn(self) -> int:
        empty = np.flatnonzero(self.board.reshape(-1) == 0)
        cell = int(empty[self.np_random.integers(len(empty))])
        kind = int(self.np_random.random() >= 0.9)
        self.board.reshape(-1)[cell] = 1 + kind
        return 2 * cell + kind

    def _info(self, label: int) -> dict[str, Any]:
        mask = np.array(
            [not np.array_equal(move_board(self.board, a)[0], self.board) for a in range(4)]
        )
        return {"action_mask": mask, "chance": label}

    def _observe(self) -> Array:
        return (self.board[None] == np.arange(self.planes)[:, None, None]).astype(np.float32)
