"""From ``env.*`` settings to environments: ids, 'module:id', callables, Atari."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym

from zero_tune.config import EnvConfig
from zero_tune.envs import atari, tasks
from zero_tune.envs.adapter import CHANCE, SlotEnv, has_players
from zero_tune.envs.spaces import ActionCodec, ObsCodec, action_codec, observation_codec
from zero_tune.envs.vector import EnvBatch, SlotBatch
from zero_tune.errors import ConfigError, nearest
from zero_tune.types import EnvSpec

tasks.register_all()


def env_name(env: EnvConfig) -> str:
    """A short name for messages and manifests."""
    if isinstance(env.env_id, str):
        return env.env_id
    return getattr(env.env_id, "__name__", type(env.env_id).__name__)


def make_raw(env: EnvConfig, *, evaluate: bool) -> gym.Env[Any, Any]:
    """One environment as its author made it (Atari: preprocessed).

    Raises:
        ConfigError: it cannot be made; the original exception is the cause.
    """
    kwargs = {**env.kwargs, **(env.eval_kwargs if evaluate else {})}
    name = env_name(env)
    try:
        if not isinstance(env.env_id, str):
            made = env.env_id(**kwargs)
        elif atari.is_atari(env.env_id):
            return atari.make(env, kwargs)
        else:
            made = gym.make(env.env_id, **kwargs)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            "env.env_id",
            f"could not be made ({type(error).__name__}: {error})",
            name,
            _remedy(env.env_id),
        ) from error
    # a vector's automatic resets would be stored as transitions
    if isinstance(made, gym.vector.VectorEnv):
        raise ConfigError(
            "env.env_id",
            f"must make one environment, not a vector of {made.num_envs}",
            name,
            "Make a single one and set env.collector_env_num to how many are to be stepped together.",
        )
    if not hasattr(made, "reset") or not hasattr(made, "action_space"):
        raise ConfigError(
            "env.env_id",
            f"must make a gymnasium environment, not {type(made).__name__}",
            name,
            "Return an object with reset, step, observation_space and action_space.",
        )
    return made


def _remedy(env_id: Any) -> str:
    if not isinstance(env_id, str):
        return "Check the callable and env.kwargs."
    close = nearest(env_id.split(":")[-1], gym.registry)
    hint = "An id registered by your own module needs the form 'module:id', or pass a callable."
    return f"{close} {hint}".strip()


def inspect_env(env: EnvConfig) -> EnvSpec:
    """Spaces, players and protocol of the configured environment; builds and closes one copy.

    Raises:
        ConfigError: it cannot be made, its spaces are unsupported, or it speaks the old gym API.
    """
    made = make_raw(env, evaluate=False)
    try:
        return _inspect(env, made)[0]
    finally:
        made.close()


def _inspect(env: EnvConfig, made: gym.Env[Any, Any]) -> tuple[EnvSpec, ObsCodec, ActionCodec]:
    name = env_name(env)
    layout = env.channel_layout or getattr(made.unwrapped, "channel_layout", None)
    obs = observation_codec(name, made.observation_space, layout)
    action = action_codec(name, made.action_space)
    info = _probe(name, made)
    players = 2 if has_players(made.observation_space, info) else 1
    is_atari = isinstance(env.env_id, str) and atari.is_atari(env.env_id)
    image = len(obs.shape) == 3
    family = "atari" if is_atari else "board" if players == 2 else "image" if image else "vector"
    if family == "board" and not image:
        family = "vector"
    limit = getattr(getattr(made, "spec", None), "max_episode_steps", None)
    spec = EnvSpec(
        env_id=name,
        obs_shape=obs.shape,
        obs_dtype=obs.dtype,
        action=action.spec,
        players=players,
        chance_size=int(getattr(made.unwrapped, "chance_size", 0)) if CHANCE in info else 0,
        max_episode_steps=env.max_episode_steps or limit,
        family=family,
        protocol=atari.protocol(env, made) if is_atari else {},
    )
    return spec, obs, action


def _probe(name: str, made: gym.Env[Any, Any]) -> dict[str, Any]:
    result: Any = made.reset(seed=0)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise ConfigError(
            "env.env_id",
            "reset() must return (observation, info), the gymnasium API",
            name,
            "Wrap the old gym environment for gymnasium, or update it.",
        )
    obs, info = result
    return {**info, **obs} if isinstance(obs, dict) else dict(info)


def make_slot(env: EnvConfig, *, evaluate: bool) -> SlotEnv:
    """One adapted environment."""
    made = make_raw(env, evaluate=evaluate)
    spec, obs, action = _inspect(env, made)
    is_atari = spec.family == "atari"
    return SlotEnv(
        made,
        spec,
        obs,
        action,
        max_steps=env.eval_max_episode_steps if evaluate else env.max_episode_steps,
        clip_rewards=is_atari and env.clip_rewards and not evaluate,
        life_loss_ends=is_atari and env.episode_life and not evaluate,
    )


def make_env_batch(env: EnvConfig, num_envs: int, *, evaluate: bool, worker_seed: int) -> EnvBatch:
    """``num_envs`` slots of the configured environment."""
    factory: Callable[[], SlotEnv] = partial(make_slot, env, evaluate=evaluate)
    return SlotBatch(factory, num_envs, worker_seed)
