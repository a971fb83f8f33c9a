"""Atari through ale-py: one owner of frame skip, stickiness, no-ops, frame max and resizing.

Every id becomes an emulator with frameskip 1 and the configured stickiness (0 by default), wrapped once
by ``ResizedAtari``. Life loss and reward clipping belong to ``SlotEnv``, since
they differ between collection and evaluation.
"""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np

from zero_tune.config import EnvConfig
from zero_tune.errors import ConfigError, nearest
from zero_tune.types import Array

_OLD = re.compile(r"^(?P<game>[A-Z]\w*?)(?:NoFrameskip|Deterministic)?-v[04]$")
_NEW = re.compile(r"^ALE/(?P<game>\w+)-v5$")


def is_atari(env_id: str) -> bool:
    """Whether the id names an Atari game of ale-py, in the old or the new naming."""
    return env_id.startswith("ALE/") or (
        bool(_OLD.match(env_id)) and env_id.split("-")[0] in _old_names()
    )


def _old_names() -> set[str]:
    _register()
    return {name.split("-")[0] for name, spec in gym.registry.items() if _from_ale(spec)}


def _from_ale(spec: Any) -> bool:
    return "ale_py" in str(spec.entry_point)


def _register() -> None:
    import ale_py

    if not any(_from_ale(spec) for spec in gym.registry.values()):
        gym.register_envs(ale_py)


def make(env: EnvConfig, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """The preprocessed game; observations (C, H, W) uint8.

    Raises:
        ConfigError: ale-py knows no such id.
    """
    _register()
    env_id = str(env.env_id)
    if env_id not in gym.registry:
        known = [name for name, spec in gym.registry.items() if _from_ale(spec)]
        remedy = nearest(env_id, [k for k in known if k.startswith("ALE/")]) or nearest(
            env_id, known
        )
        raise ConfigError(
            "env.env_id", "ale-py has no such game", env_id, remedy or "See ale-py's games."
        )
    raw = gym.make(
        env_id,
        frameskip=1,
        repeat_action_probability=env.repeat_action_probability,
        full_action_space=env.full_action_space,
        **kwargs,
    )
    return ResizedAtari(raw, env)


class ResizedAtari(gym.Wrapper[Any, Any, Any, Any]):
    """Frame skip with a max over the last two frames, no-op starts, area-averaged resize.

    ``gymnasium.wrappers.AtariPreprocessing`` does the same but needs OpenCV, which is no dependency here.
    """

    def __init__(self, env: gym.Env[Any, Any], config: EnvConfig) -> None:
        super().__init__(env)
        self._config = config
        self.ale = env.unwrapped.ale
        self._channels = 1 if config.gray_scale else 3
        height, width = self.ale.getScreenDims()
        side = config.image_size
        self._rows, self._columns = _area_weights(height, side), _area_weights(width, side).T
        shape = (height, width) if config.gray_scale else (height, width, 3)
        self._frames = [np.zeros(shape, np.uint8) for _ in range(2)]
        self.observation_space = gym.spaces.Box(0, 255, (self._channels, side, side), np.uint8)
        meanings = env.unwrapped.get_action_meanings()
        self._noop = meanings.index("NOOP")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset, then up to ``noop_max`` random no-ops drawn from the environment's generator."""
        _, info = self.env.reset(seed=seed, options=options)
        most = self._config.noop_max
        count = int(self.unwrapped.np_random.integers(1, most + 1)) if most > 0 else 0
        for _ in range(count):
            _, _, terminated, truncated, info = self.env.step(self._noop)
            if terminated or truncated:
                _, info = self.env.reset(options=options)
        self._screen(1)
        self._frames[0][...] = self._frames[1]
        return self._observation(), self._info(info)

    def step(self, action: Any) -> Any:
        """``frame_skip`` emulator frames with one action; rewards add up."""
        total, terminated, truncated = 0.0, False, False
        info: dict[str, Any] = {}
        skip = self._config.frame_skip
        for frame in range(skip):
            _, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if frame >= skip - 2:
                self._screen(frame - (skip - 2) if skip > 1 else 1)
            if terminated or truncated:
                self._screen(1)
                break
        if skip == 1:
            self._frames[0][...] = self._frames[1]
        return self._observation(), total, terminated, truncated, self._info(info)

    def _screen(self, index: int) -> None:
        grab = self.ale.getScreenGrayscale if self._config.gray_scale else self.ale.getScreenRGB
        grab(self._frames[index])

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "lives": self.ale.lives()}

    def _observation(self) -> Array:
        frame = np.maximum(self._frames[0], self._frames[1]).astype(np.float32)
        if self._config.gray_scale:
            small = (self._rows @ frame @ self._columns)[None]
        else:
            small = np.stack([self._rows @ frame[..., c] @ self._columns for c in range(3)])
        return np.clip(np.rint(small), 0, 255).astype(np.uint8)


def _area_weights(source: int, target: int) -> Array:
    """[target, source] weights of exact area averaging along one axis; rows sum to 1."""
    edges = np.linspace(0.0, source, target + 1)
    cells = np.arange(source)
    low = np.maximum(edges[:-1, None], cells[None])
    high = np.minimum(edges[1:, None], cells[None] + 1)
    weights = np.clip(high - low, 0.0, None)
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def protocol(env: EnvConfig, made: gym.Env[Any, Any]) -> dict[str, Any]:
    """The effective Atari protocol, for manifests and logs."""
    ale = made.ale
    return {
        "frame_skip": env.frame_skip,
        "repeat_action_probability": float(ale.getFloat("repeat_action_probability")),
        "noop_max": env.noop_max,
        "episode_life": env.episode_life,
        "clip_rewards": env.clip_rewards,
        "image_size": env.image_size,
        "gray_scale": env.gray_scale,
        "full_action_space": env.full_action_space,
    }
