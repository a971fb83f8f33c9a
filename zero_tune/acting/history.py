"""What each environment slot has seen: the raw data a root is built from."""

from __future__ import annotations

import numpy as np
import torch

from zero_tune.types import ActionSpec, Array, History


class HistoryRing:
    """The last M stacked observations and actions of every slot.

    Args:
        num_slots: environments.
        length: M, ``model.history_length``.
        frame_stack: F frames per observation; before the episode's start its first frame repeats.
        frame_shape: one frame, (C, H, W) or (F,).
        dtype: of a frame.
    """

    def __init__(
        self,
        num_slots: int,
        length: int,
        frame_stack: int,
        frame_shape: tuple[int, ...],
        dtype: str,
        action: ActionSpec,
    ) -> None:
        self._frames = np.zeros((num_slots, frame_stack, *frame_shape), dtype)
        stacked = (frame_shape[0] * frame_stack, *frame_shape[1:])
        self._obs = np.zeros((num_slots, length, *stacked), dtype)
        self._action = np.zeros((num_slots, length, action.dim), action.dtype)
        self._length = np.zeros(num_slots, np.int64)
        self._timestep = np.full(num_slots, -1, np.int64)
        self._most = length

    def reset(self, slots: Array) -> None:
        """The next observation of these slots starts an episode."""
        self._length[slots] = 0
        self._timestep[slots] = -1
        self._action[slots] = 0

    def append(self, slots: Array, frames: Array) -> None:
        """Add the newest frame [n, *frame] of each slot."""
        first = self._length[slots] == 0
        self._frames[slots, :-1] = self._frames[slots, 1:]
        self._frames[slots, -1] = frames
        if first.any():
            self._frames[slots[first]] = frames[first][:, None]
        stacked = self._frames[slots].reshape(len(slots), *self._obs.shape[2:])
        if self._most > 1:
            self._obs[slots, :-1] = self._obs[slots, 1:]
            self._action[slots, :-1] = self._action[slots, 1:]
            self._action[slots, -1] = 0
            if first.any():
                self._obs[slots[first]] = stacked[first][:, None]
        self._obs[slots, -1] = stacked
        self._length[slots] = np.minimum(self._length[slots] + 1, self._most)
        self._timestep[slots] += 1

    def set_action(self, slots: Array, actions: Array) -> None:
        """The actions [n, D] executed in the newest observations."""
        self._action[slots, -1] = actions

    def timestep(self, slots: Array) -> Array:
        """Step number within the episode of each slot's newest observation."""
        out: Array = self._timestep[slots].copy()
        return out

    def view(self) -> History:
        """Histories of all slots; shares memory with the ring until the next ``append``."""
        return History(
            torch.from_numpy(self._obs),
            torch.from_numpy(self._action),
            torch.from_numpy(self._length),
            torch.from_numpy(self._timestep),
        )
