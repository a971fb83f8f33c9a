"""Tic-tac-toe for self-play, and against a fixed opponent for evaluation."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

_LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
Board = tuple[int, ...]


def winner(board: Board) -> int:
    """1 or 2 if that player has a line, else 0."""
    for a, b, c in _LINES:
        if board[a] and board[a] == board[b] == board[c]:
            return board[a]
    return 0


def place(board: Board, cell: int, player: int) -> Board:
    """The board after ``player`` moved to ``cell``."""
    return (*board[:cell], player, *board[cell + 1 :])


@cache
def best_value(board: Board, player: int) -> int:
    """Game value in {-1, 0, 1} for ``player``, who is to move, under perfect play."""
    if winner(board):
        return -1
    free = [i for i in range(9) if not board[i]]
    if not free:
        return 0
    return max(-best_value(place(board, i, player), 3 - player) for i in free)


class TicTacToe(gym.Env[dict[str, Any], int]):
    """Observation: planes (own stones, other's stones, all ones if player 1 moves), mask, to_play.

    Self-play (``opponent=None``): players 1 and 2 alternate; the reward is +1 for the player who made the
    winning move, seen by that player, 0 otherwise. Against an opponent (``random`` or ``perfect``) the
    environment plays the other side, and a loss gives -1. ``agent_first``: True, False, or None to draw it.
    A perfect player against a random mover scores 0.995 moving first and 0.925 moving second (exact).
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    channel_layout = "channels_first"

    def __init__(self, opponent: str | None = None, agent_first: bool | None = True) -> None:
        if opponent not in (None, "random", "perfect"):
            raise ValueError(f"opponent must be None, 'random' or 'perfect', got {opponent!r}")
        self.opponent, self.agent_first = opponent, agent_first
        self.observation_space = gym.spaces.Dict(
            {
                "observation": gym.spaces.Box(0.0, 1.0, (3, 3, 3), np.float32),
                "action_mask": gym.spaces.MultiBinary(9),
                "to_play": gym.spaces.Discrete(2, start=1),
            }
        )
        self.action_space = gym.spaces.Discrete(9)
        self._board: Board = (0,) * 9
        self._player = 1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """An empty board, or one with the opponent's first move on it."""
        super().reset(seed=seed)
        self._board, self._player = (0,) * 9, 1
        if self.opponent is not None:
            first = self.agent_first
            if first is None:
                first = bool(self.np_random.integers(2))
            if not first:
                self._play(self._opponent_move())
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One move; against an opponent also its answer."""
        reward, over = self._play(int(action))
        if self.opponent is not None and not over:
            theirs, over = self._play(self._opponent_move())
            reward = -theirs
        return self._observe(), float(reward), over, False, {}

    def _play(self, cell: int) -> tuple[float, bool]:
        if self._board[cell]:
            raise ValueError(f"cell {cell} is taken")
        self._board = place(self._board, cell, self._player)
        won = winner(self._board) == self._player
        self._player = 3 - self._player
        return float(won), won or 0 not in self._board

    def _opponent_move(self) -> int:
        free = [i for i in range(9) if not self._board[i]]
        if self.opponent == "perfect":
            player = self._player
            values = [-best_value(place(self._board, i, player), 3 - player) for i in free]
            free = [i for i, v in zip(free, values, strict=True) if v == max(values)]
        return int(free[self.np_random.integers(len(free))])

    def _observe(self) -> dict[str, Any]:
        board = np.array(self._board).reshape(3, 3)
        mine, theirs = board == self._player, board == 3 - self._player
        turn = np.full((3, 3), self._player == 1)
        mask = (board == 0).reshape(-1) & (winner(self._board) == 0)
        return {
            "observation": np.stack([mine, theirs, turn]).astype(np.float32),
            "action_mask": mask.astype(np.int8),
            "to_play": self._player,
        }
