"""Builds segments, one per slot; an open one survives from one collect to the next."""

from __future__ import annotations

import numpy as np

from zero_tune.types import ActionSpec, Array, EnvSpec, SearchResult, Segment


class SegmentBuilder:
    """Accumulates up to ``length`` transitions of one episode.

    Args:
        num_slots: K weights per step.
        candidates: store the candidates' actions too.
    """

    def __init__(
        self, env: EnvSpec, length: int, num_slots: int, candidates: bool, stream_id: int
    ) -> None:
        action: ActionSpec = env.action
        width = action.size if action.kind == "discrete" else 0
        self._most, self.stream_id, self.episode_id = length, stream_id, -1
        self._obs = np.zeros((length + 1, *env.obs_shape), env.obs_dtype)
        self._action = np.zeros((length, action.dim), action.dtype)
        self._reward = np.zeros(length, np.float32)
        self._root_value = np.zeros(length, np.float32)
        self._pred_value = np.zeros(length, np.float32)
        self._weights = np.zeros((length, num_slots), np.float32)
        self._candidates = (
            np.zeros((length, num_slots, action.dim), action.dtype) if candidates else None
        )
        self._legal = np.zeros((length + 1, width), bool)
        self._chance = np.full(length, -1, np.int32) if env.chance_size else None
        self._to_play = np.zeros(length + 1, np.int8)
        self._timestep = np.zeros(length, np.int32)
        self._version = 0
        self.size = 0

    def start_episode(self, obs: Array, legal: Array, to_play: int) -> None:
        """The next transition starts a new episode at its own reset observation."""
        self.episode_id += 1
        self.size = 0
        self._next_timestep = 0
        self._put_state(obs, legal, to_play)

    def add(
        self,
        result: SearchResult,
        row: int,
        reward: float,
        chance: int,
        obs: Array,
        legal: Array,
        to_play: int,
        version: int,
    ) -> None:
        """One transition: row ``row`` of a search result, what it led to, and the next observation."""
        i = self.size
        self._action[i] = result.action[row]
        self._reward[i] = reward
        self._root_value[i] = result.value[row]
        self._pred_value[i] = result.root_value[row]
        self._weights[i] = result.target.weights[row]
        if self._candidates is not None and result.target.actions is not None:
            self._candidates[i] = result.target.actions[row]
        if self._chance is not None:
            self._chance[i] = chance
        self._timestep[i] = self._next_timestep
        self._next_timestep += 1
        self._version = version
        self.size += 1
        self._put_state(obs, legal, to_play)

    @property
    def full(self) -> bool:
        """Whether the segment has its length."""
        return self.size == self._most

    def finish(self, terminated: bool, truncated: bool) -> Segment:
        """The segment as owned copies; unless the episode ended, the next one starts where it stops."""
        n = self.size
        segment = Segment(
            obs=self._obs[: n + 1].copy(),
            action=self._action[:n].copy(),
            reward=self._reward[:n].copy(),
            root_value=self._root_value[:n].copy(),
            pred_value=self._pred_value[:n].copy(),
            weights=self._weights[:n].copy(),
            candidates=None if self._candidates is None else self._candidates[:n].copy(),
            legal=self._legal[: n + 1].copy(),
            chance=None if self._chance is None else self._chance[:n].copy(),
            to_play=self._to_play[: n + 1].copy(),
            timestep=self._timestep[:n].copy(),
            stream_id=self.stream_id,
            episode_id=self.episode_id,
            terminated=terminated,
            truncated=truncated,
            policy_version=self._version,
        )
        self.size = 0
        self._put_state(segment.obs[n], segment.legal[n], int(segment.to_play[n]))
        return segment

    def _put_state(self, obs: Array, legal: Array, to_play: int) -> None:
        self._obs[self.size] = obs
        self._legal[self.size] = legal
        self._to_play[self.size] = to_play
