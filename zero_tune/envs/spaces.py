"""Spaces to shapes: what an observation or action looks like inside, and how to convert it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from zero_tune.errors import ConfigError, EnvError, NonFiniteError
from zero_tune.types import ActionSpec, Array

_CHANNEL_COUNTS = (1, 2, 3, 4)


@dataclass(frozen=True)
class ObsCodec:
    """Converts raw observations to frames (C, H, W) or (F,)."""

    env_id: str
    raw_shape: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str  # "uint8" | "float32"
    layout: str  # "vector" | "one_hot" | "channels_first" | "channels_last" | "plain"
    start: int = 0  # of a Discrete space

    def encode(self, obs: Any) -> Array:
        """One frame, an owned array.

        Raises:
            EnvError: the shape is not the declared one.
            NonFiniteError: an entry is NaN or infinite.
        """
        if self.layout == "one_hot":
            out = np.zeros(self.shape, np.float32)
            out[int(obs) - self.start] = 1.0
            return out
        array = np.asarray(obs)
        if array.shape != self.raw_shape:
            raise EnvError(
                f"{self.env_id}: observation has shape {array.shape}, its space declares {self.raw_shape}"
            )
        if self.layout == "channels_last":
            array = np.moveaxis(array, -1, 0)
        frame = np.array(array, dtype=self.dtype, order="C").reshape(self.shape)
        if self.dtype != "uint8" and not np.isfinite(frame).all():
            raise NonFiniteError("observation", f"{self.env_id} returned a NaN or an infinity")
        return frame


def observation_codec(env_id: str, space: spaces.Space[Any], layout: str | None) -> ObsCodec:
    """How observations of ``space`` are read.

    Args:
        layout: of three-dimensional images; an environment may declare its own in an attribute
            ``channel_layout``.

    Raises:
        ConfigError: the space is not supported, or its image layout is ambiguous.
    """
    if isinstance(space, spaces.Dict):
        if "observation" not in space.spaces:
            raise ConfigError(
                "env.env_id",
                "a Dict observation space must have an entry 'observation' (and may have 'action_mask', "
                "'to_play')",
                env_id,
                "Wrap the environment with gymnasium.wrappers.FlattenObservation.",
            )
        space = space.spaces["observation"]
    if isinstance(space, spaces.Discrete):
        return ObsCodec(env_id, (), (int(space.n),), "float32", "one_hot", int(space.start))
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            "env.env_id",
            f"observation space must be Box or Discrete, not {type(space).__name__}",
            env_id,
            "Wrap the environment with gymnasium.wrappers.FlattenObservation.",
        )
    raw = tuple(int(n) for n in space.shape)
    dtype = "uint8" if space.dtype == np.uint8 else "float32"
    if len(raw) <= 1:
        return ObsCodec(env_id, raw, (raw[0] if raw else 1,), dtype, "vector")
    if len(raw) == 2:
        return ObsCodec(env_id, raw, (1, *raw), dtype, "plain")
    if len(raw) != 3:
        size = int(np.prod(raw))
        return ObsCodec(env_id, raw, (size,), dtype, "vector")
    kind = layout or _guess_layout(env_id, raw)
    shape = raw if kind == "channels_first" else (raw[2], raw[0], raw[1])
    return ObsCodec(env_id, raw, shape, dtype, kind)


def _guess_layout(env_id: str, raw: tuple[int, ...]) -> str:
    """The layout in which exactly one outer axis can be a channel axis (1 to 4 entries)."""
    first, last = raw[0] in _CHANNEL_COUNTS, raw[2] in _CHANNEL_COUNTS
    if first != last:
        return "channels_first" if first else "channels_last"
    if first and 1 in (raw[0], raw[2]) and raw[0] != raw[2]:
        return "channels_first" if raw[0] == 1 else "channels_last"
    raise ConfigError(
        "env.channel_layout",
        f"is needed: an image of shape {raw} can be read both ways ({env_id})",
        None,
        "Set it to 'channels_first' or 'channels_last'.",
    )


@dataclass(frozen=True)
class ActionCodec:
    """Converts internal actions [D] to what ``env.step`` takes."""

    spec: ActionSpec
    start: int = 0
    low: Array | None = None
    high: Array | None = None
    shape: tuple[int, ...] = ()
    dtype: Any = np.float32

    def to_env(self, action: Array) -> Any:
        """An int for Discrete; an array within the bounds for Box ([-1, 1] maps to [low, high])."""
        if self.low is None or self.high is None:
            return int(action[0]) + self.start
        share = (np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        scaled = self.low + share * (self.high - self.low)
        return np.clip(scaled, self.low, self.high).astype(self.dtype).reshape(self.shape)


def action_codec(env_id: str, space: spaces.Space[Any]) -> ActionCodec:
    """How actions of ``space`` are written.

    Raises:
        ConfigError: the space is not Discrete or a bounded Box.
    """
    if isinstance(space, spaces.Discrete):
        return ActionCodec(ActionSpec("discrete", int(space.n)), int(space.start))
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ConfigError(
                "env.env_id",
                f"action space {space} has infinite bounds",
                env_id,
                "Wrap the environment with gymnasium.wrappers.RescaleAction or give finite bounds.",
            )
        low, high = (
            space.low.reshape(-1).astype(np.float64),
            space.high.reshape(-1).astype(np.float64),
        )
        size = int(np.prod(space.shape))
        spec = ActionSpec("continuous", size)
        return ActionCodec(spec, 0, low, high, tuple(space.shape), space.dtype)
    raise ConfigError(
        "env.env_id",
        f"action space must be Discrete or Box, not {space}",
        env_id,
        "Flatten it to one Discrete space with a wrapper.",
    )
