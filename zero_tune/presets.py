"""Defaults per policy type and environment family, and ``resolve``: from a user's dict to a checked config.

Order of precedence, lowest first: ``_FAMILY`` (environment family), ``_TYPE`` (policy type), ``_PAIR``
(both), the user's own keys, then values read from the environment's spaces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from zero_tune.checks import check_config, check_scoped_keys
from zero_tune.config import ALIASES, Config, EnvConfig, parse_group
from zero_tune.errors import ConfigError
from zero_tune.parsing import get_path, merge, set_path
from zero_tune.policies import policy_spec
from zero_tune.types import EnvSpec

_VECTOR: dict[str, Any] = {
    "model": {
        "model_type": "mlp",
        "frame_stack_num": 1,
        "num_channels": 64,
        "downsample": False,
        "norm_type": "LN",  # batch statistics of a small replay buffer mislead evaluation
        "latent_norm": "none",
        "latent_state_dim": 128,
        "fc_hidden": 64,
        "reward_support_range": (-50, 51, 1),
        "value_support_range": (-50, 51, 1),
        "self_supervised_learning_loss": True,
        "proj_hid": 128,
        "pred_hid": 64,
        "rnn_hidden_size": 128,
        "lstm_hidden_size": 64,
        "chance_space_size": 32,
        "embed_dim": 64,
        "num_heads": 2,
        "dropout": 0.0,
    },
    "num_simulations": 25,
    "discount_factor": 0.997,
    "manual_temperature_decay": False,
    "fixed_temperature_value": 1.0,
    "num_unroll_steps": 5,
    "td_steps": 10,
    "batch_size": 128,
    "game_segment_length": 50,
    "replay_buffer_size": 100_000,
    "replay_ratio": 0.25,
    "train_start_after_envsteps": 400,
    "use_priority": False,
    "use_augmentation": False,
    "value_loss_weight": 0.25,
    "ssl_loss_weight": 2.0,
    "policy_entropy_weight": 5e-3,
    "latent_grad_scale": 0.5,
    "optim_type": "Adam",
    "learning_rate": 3e-3,
    "weight_decay": 0.0,  # in Adam it outweighs the gradient of whatever is rare in the data
    "grad_clip_value": 10.0,
    "piecewise_decay_lr_scheduler": False,
    "target_update_freq": 100,
    "eval_freq": 500,
}

_IMAGE: dict[str, Any] = merge(
    _VECTOR,
    {
        "model": {
            "model_type": "conv",
            "num_channels": 16,
            "latent_norm": "minmax",
            "self_supervised_learning_loss": False,
            "fc_hidden": 32,
        },
        "td_steps": 5,
        "batch_size": 64,
        "ssl_loss_weight": 0.0,
    },
)

_BOARD: dict[str, Any] = merge(
    _IMAGE,
    {
        "discount_factor": 1.0,
        "td_steps": 9,
        "model": {"reward_support_range": (-10, 11, 1), "value_support_range": (-10, 11, 1)},
        "game_segment_length": 20,
        "manual_temperature_decay": False,
    },
)

_ATARI: dict[str, Any] = {
    "model": {
        "model_type": "conv",
        "frame_stack_num": 4,
        "num_channels": 64,
        "downsample": True,
        "norm_type": "BN",
        "latent_norm": "none",
        "latent_state_dim": 256,
        "fc_hidden": 32,
        "reward_support_range": (-50, 51, 1),
        "value_support_range": (-50, 51, 1),
        "self_supervised_learning_loss": True,
        "proj_hid": 1024,
        "pred_hid": 512,
        "rnn_hidden_size": 512,
        "lstm_hidden_size": 512,
        "chance_space_size": 32,
        "embed_dim": 768,
        "num_heads": 8,
        "dropout": 0.1,
    },
    "num_simulations": 50,
    "discount_factor": 0.997,
    "manual_temperature_decay": True,
    "num_unroll_steps": 5,
    "td_steps": 5,
    "batch_size": 256,
    "game_segment_length": 20,
    "replay_buffer_size": 500_000,
    "replay_ratio": 0.25,
    "train_start_after_envsteps": 2000,
    "use_priority": False,
    "use_augmentation": True,
    "value_loss_weight": 0.25,
    "ssl_loss_weight": 2.0,
    "policy_entropy_weight": 5e-3,
    "latent_grad_scale": 0.5,
    "optim_type": "SGD",
    "learning_rate": 0.2,
    "weight_decay": 1e-4,
    "grad_clip_value": 10.0,
    "piecewise_decay_lr_scheduler": True,
    "lr_warmup_steps": 1000,
    "target_update_freq": 100,
    "eval_freq": 5000,
}

_FAMILY = {"vector": _VECTOR, "image": _IMAGE, "board": _BOARD, "atari": _ATARI}

_SAMPLED: dict[str, Any] = {
    "optim_type": "AdamW",
    "num_of_sampled_actions": 20,
    "policy_entropy_weight": 5e-3,
}

_TOKEN: dict[str, Any] = {
    "model": {
        "norm_type": "LN",
        "latent_norm": "layernorm",
        "self_supervised_learning_loss": False,
    },
    "optim_type": "AdamW",
    "learning_rate": 1e-3,
    "value_loss_weight": 0.5,
    "ssl_loss_weight": 0.0,
    "grad_clip_value": 5.0,
    "target_update_theta": 0.05,
    "latent_grad_scale": 1.0,
}

_TYPE: dict[str, dict[str, Any]] = {
    # the consistency loss draws a latent to what one observation shows: the opposite of remembering
    "muzero_context": {
        "model": {"self_supervised_learning_loss": False},
        "ssl_loss_weight": 0.0,
        "latent_grad_scale": 1.0,
    },
    # here memory is the recurrent state, and the predicted latent has no other loss; normalised, so that
    # the heads, which learn on encoded latents, meet predicted ones of the same scale in the search
    "muzero_rnn_full_obs": {
        "model": {"self_supervised_learning_loss": True, "latent_norm": "layernorm"},
        "ssl_loss_weight": 2.0,
        "latent_grad_scale": 1.0,
    },
    "efficientzero": {"model": {"self_supervised_learning_loss": True}, "ssl_loss_weight": 2.0},
    "sampled_efficientzero": merge(
        _SAMPLED, {"model": {"self_supervised_learning_loss": True}, "ssl_loss_weight": 2.0}
    ),
    "sampled_muzero": _SAMPLED,
    "unizero": _TOKEN,
    "sampled_unizero": merge(_TOKEN, {"num_of_sampled_actions": 20, "policy_entropy_weight": 5e-3}),
}

_PAIR: dict[tuple[str, str], dict[str, Any]] = {
    ("unizero", "atari"): {
        "model": {"frame_stack_num": 1},
        "learning_rate": 1e-4,
        "weight_decay": 1e-2,
        "num_unroll_steps": 10,
        "game_segment_length": 200,
        "replay_ratio": 0.1,
        "piecewise_decay_lr_scheduler": False,
        "lr_warmup_steps": 0,
        "collect_num_simulations": 25,
    },
}


def preset(policy_type: str, family: str) -> dict[str, Any]:
    """The ``policy`` group's defaults for one policy type on one environment family."""
    out = merge(_FAMILY[family], _TYPE.get(policy_type, {}))
    return merge(out, _PAIR.get((policy_type, family), {}))


def resolve(user: Mapping[str, Any], env: EnvSpec | None = None) -> tuple[Config, EnvSpec]:
    """The complete configuration for a user's nested dict, and the environment's spec.

    Builds the environment once to read its spaces (unless ``env`` is given), fills in every ``None``,
    and checks each value and each combination.

    Raises:
        ConfigError: anything is unknown, out of range, contradictory or impossible.
    """
    data = _rename_aliases(user)
    parsed = Config.from_dict(data)  # unknown keys and ranges first: they cost nothing
    spec = policy_spec(parsed.policy.type)
    if env is None:
        env = read_env_spec(parsed.env)
    defaults = preset(parsed.policy.type, env.family)
    check_scoped_keys(parsed.policy.type, data.get("policy", {}), defaults)
    group = merge(defaults, _given(data.get("policy", {})))
    if spec.proposal == "sample" and env.action.kind == "discrete":
        if get_path(data, "policy.num_of_sampled_actions") is None:
            group["num_of_sampled_actions"] = min(20, env.action.size)
    elif spec.proposal == "enumerate":
        group.pop("num_of_sampled_actions", None)
    config = Config.from_dict({**data, "policy": group})
    config = _fill_from_env(config, env)
    check_config(config, env)
    return config, env


def read_env_spec(env: EnvConfig) -> EnvSpec:
    """Spaces and protocol of the configured environment; builds and closes one copy."""
    from zero_tune.envs.registry import inspect_env

    return inspect_env(env)


def _rename_aliases(user: Mapping[str, Any]) -> dict[str, Any]:
    data = merge({}, user)
    for old, new in ALIASES.items():
        value = get_path(data, old, ALIASES)
        if value is ALIASES:
            continue
        if get_path(data, new, ALIASES) is not ALIASES:
            raise ConfigError(old, f"is another name of {new}; give one of them", value)
        *groups, last = old.split(".")
        node = data
        for group in groups:
            node[group] = dict(node[group])
            node = node[group]
        del node[last]
        set_path(data, new, value)
    return data


def _given(group: Mapping[str, Any]) -> dict[str, Any]:
    """``group`` without its ``None`` values, which mean "the preset's"; ``max_policy_lag`` keeps its own."""
    out: dict[str, Any] = {}
    for name, value in group.items():
        if isinstance(value, Mapping):
            out[name] = _given(value)
        elif value is not None or name == "max_policy_lag":
            out[name] = value
    return out


def _fill_from_env(config: Config, env: EnvSpec) -> Config:
    policy, model, pipe = config.policy, config.policy.model, config.policy.async_pipeline
    stack = model.frame_stack_num or 1
    stacked = (
        (env.obs_shape[0] * stack, *env.obs_shape[1:])
        if env.is_image
        else (env.obs_shape[0] * stack,)
    )
    if model.observation_shape is not None and tuple(model.observation_shape) != stacked:
        raise ConfigError(
            "policy.model.observation_shape",
            f"must equal the environment's stacked shape {stacked} ({stack} frames of {env.obs_shape})",
            model.observation_shape,
            "Leave the key out: the shape is read from the environment.",
        )
    if model.action_space_size is not None and model.action_space_size != env.action.size:
        raise ConfigError(
            "policy.model.action_space_size",
            f"must equal the environment's {env.action.size}",
            model.action_space_size,
            "Leave the key out: the size is read from the environment.",
        )
    sims = policy.num_simulations
    policy = dataclasses.replace(
        policy,
        model=dataclasses.replace(
            model, observation_shape=stacked, action_space_size=env.action.size
        ),
        collect_num_simulations=policy.collect_num_simulations or sims,
        eval_num_simulations=policy.eval_num_simulations or sims,
        num_segments=policy.num_segments or config.env.collector_env_num,
        async_pipeline=dataclasses.replace(
            pipe,
            max_collect_inflight=pipe.max_collect_inflight or pipe.num_collector_actors,
            max_train_budget_queue_size=pipe.max_train_budget_queue_size
            or 2 * pipe.num_collector_actors,
        ),
    )
    return dataclasses.replace(config, policy=policy)


def parse_env(data: Mapping[str, Any]) -> EnvConfig:
    """The ``env`` group alone, checked."""
    return parse_group(EnvConfig, {"env": data}, "env")
