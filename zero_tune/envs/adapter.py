"""One environment behind one boundary: spaces, layouts, masks, bounds and errors are settled here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from zero_tune.envs.spaces import ActionCodec, ObsCodec
from zero_tune.errors import EnvError, NonFiniteError
from zero_tune.types import Array, EnvSpec

#: Keys of a dict observation (or of info) beside the observation itself.
MASK, TO_PLAY, CHANCE = "action_mask", "to_play", "chance"


@dataclass(frozen=True)
class Reading:
    """One observation with what goes with it."""

    obs: Array  # [*frame]
    legal: Array  # [A] bool
    to_play: int  # -1, 1 or 2
    chance: int  # code of the transition that led here, -1 unknown


@dataclass(frozen=True)
class Step:
    """One transition."""

    reading: Reading
    reward: float
    terminated: bool
    truncated: bool
    episode_over: bool
    episode_return: float
    episode_length: int


class SlotEnv:
    """Adapts one gymnasium environment.

    Args:
        env: the environment.
        spec: what was read from its spaces.
        max_steps: truncate episodes of this many steps (None: never).
        clip_rewards: give the learner the sign of the reward; returns stay raw.
        life_loss_ends: a falling ``info["lives"]`` ends the learning episode; the game goes on.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        spec: EnvSpec,
        obs_codec: ObsCodec,
        action_codec: ActionCodec,
        *,
        max_steps: int | None = None,
        clip_rewards: bool = False,
        life_loss_ends: bool = False,
    ) -> None:
        self.env, self.spec = env, spec
        self._obs, self._action = obs_codec, action_codec
        self._max_steps, self._clip, self._life_ends = max_steps, clip_rewards, life_loss_ends
        self._legal = np.ones(spec.action.size if spec.action.kind == "discrete" else 0, bool)
        self._return, self._length, self._lives = 0.0, 0, 0
        self._last: tuple[Any, Mapping[str, Any]] | None = None
        self._game_over, self._life_lost = True, False

    def reset(self, seed: int | None = None) -> Reading:
        """First observation of a new episode.

        After a lost life the same game goes on from where it stood; with a seed it always restarts.
        """
        if seed is not None:
            self.env.action_space.seed(seed)
        if seed is None and self._life_lost and self._last is not None:
            self._life_lost = False
            return self._read(*self._last)
        result = self.env.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
            raise EnvError(
                f"{self.spec.env_id}: reset() must return (observation, info), the gymnasium API; "
                f"got {type(result).__name__}. Wrap the old gym environment."
            )
        self._return, self._length, self._game_over = 0.0, 0, False
        self._life_lost = False
        self._lives = int(result[1].get("lives", 0))
        self._last = result
        return self._read(*result)

    def step(self, action: Array) -> Step:
        """Execute one internal action [D].

        Raises:
            EnvError: the action is illegal, or the environment broke the gymnasium API.
            NonFiniteError: the reward or observation is NaN or infinite.
        """
        if self._legal.size and not self._legal[int(action[0])]:
            raise EnvError(
                f"{self.spec.env_id}: action {int(action[0])} is illegal here; "
                f"legal are {np.flatnonzero(self._legal).tolist()}"
            )
        result = self.env.step(self._action.to_env(action))
        if not (isinstance(result, tuple) and len(result) == 5):
            raise EnvError(
                f"{self.spec.env_id}: step() must return (observation, reward, terminated, truncated, "
                "info), the gymnasium API. Wrap the old gym environment."
            )
        obs, reward, terminated, truncated, info = result
        reward = float(reward)
        if not np.isfinite(reward):
            raise NonFiniteError(
                "reward", f"{self.spec.env_id} returned {reward} at step {self._length}"
            )
        self._return += reward
        self._length += 1
        self._last = (obs, info)
        terminated, truncated = bool(terminated), bool(truncated)
        if self._max_steps is not None and self._length >= self._max_steps and not terminated:
            truncated = True
        self._game_over = terminated or truncated
        lives = int(info.get("lives", 0))
        self._life_lost = self._life_ends and 0 < lives < self._lives and not self._game_over
        terminated = terminated or self._life_lost
        self._lives = lives
        return Step(
            self._read(obs, info),
            float(np.sign(reward)) if self._clip else reward,
            terminated,
            truncated and not terminated,
            self._game_over,
            self._return,
            self._length,
        )

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _read(self, obs: Any, info: Mapping[str, Any]) -> Reading:
        extra: Mapping[str, Any] = info
        if isinstance(obs, Mapping):
            extra, obs = {**info, **obs}, obs["observation"]
        frame = self._obs.encode(obs)
        if self._legal.size:
            mask = extra.get(MASK)
            self._legal = np.ones(self._legal.size, bool) if mask is None else self._mask(mask)
        to_play = int(extra.get(TO_PLAY, 1)) if self.spec.players == 2 else -1
        return Reading(frame, self._legal, to_play, int(extra.get(CHANCE, -1)))

    def _mask(self, mask: Any) -> Array:
        legal = np.asarray(mask).astype(bool).reshape(-1)
        if legal.size != self.spec.action.size:
            raise EnvError(
                f"{self.spec.env_id}: action_mask has {legal.size} entries, the space "
                f"{self.spec.action.size} actions"
            )
        if not legal.any() and not self._game_over:
            raise EnvError(f"{self.spec.env_id}: action_mask allows no action")
        return legal


def has_players(space: spaces.Space[Any], info: Mapping[str, Any]) -> bool:
    """Whether the environment reports whose turn it is."""
    return TO_PLAY in info or (isinstance(space, spaces.Dict) and TO_PLAY in space.spaces)
