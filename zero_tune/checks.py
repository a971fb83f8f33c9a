"""Rules that relate several settings to each other or to the environment; all run before any actor starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zero_tune.config import Config, ModelConfig, PolicyConfig, need
from zero_tune.errors import ConfigError
from zero_tune.parsing import get_path
from zero_tune.policies import POLICIES, SCOPED_KEYS, policy_spec
from zero_tune.types import EnvSpec


def check_scoped_keys(
    policy_type: str, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Refuse a user's key that policy type ``policy_type`` would ignore.

    A value equal to the default is no request, so a resolved config may be passed in again.

    Raises:
        ConfigError: naming the types that use the key.
    """
    flat = [name for name, value in given.items() if not isinstance(value, Mapping)]
    flat += [f"model.{name}" for name in given.get("model", {})]
    own = policy_spec(policy_type).own_keys
    for name in flat:
        value = _value(given, name)
        usual = (None, _plain(Config().policy, name), get_path(defaults, name))
        if name in SCOPED_KEYS and name not in own and value not in usual:
            users = ", ".join(t for t, spec in POLICIES.items() if name in spec.own_keys)
            raise ConfigError(
                f"policy.{name}",
                f"is not used by policy.type={policy_type!r} (only by {users})",
                value,
                "Remove the key or choose one of those types.",
            )


def _value(given: Mapping[str, Any], name: str) -> Any:
    return given["model"][name[6:]] if name.startswith("model.") else given[name]


def _plain(policy: PolicyConfig, name: str) -> Any:
    """The dataclass default of a key below ``policy.``, None for an unknown one."""
    owner = policy.model if name.startswith("model.") else policy
    return getattr(owner, name.removeprefix("model."), None)


def check_config(config: Config, env: EnvSpec) -> None:
    """Check every combination.

    Raises:
        ConfigError: the first contradiction found.
    """
    _check_spaces(config.policy, env)
    _check_model(config.policy.model, env)
    _check_replay(config)
    _check_schedules(config)
    _check_pipeline(config)


def _check_spaces(policy: PolicyConfig, env: EnvSpec) -> None:
    spec = policy_spec(policy.type)
    if env.action.kind == "continuous" and spec.proposal == "enumerate":
        sampled = [t for t, s in POLICIES.items() if s.proposal == "sample"]
        raise ConfigError(
            "policy.type",
            f"{policy.type!r} enumerates actions, but {env.env_id} has a Box action space of size "
            f"{env.action.size}",
            policy.type,
            f"Use one of {', '.join(sampled)}.",
        )
    if env.action.kind == "continuous" and env.players == 2:
        raise ConfigError(
            "env.env_id",
            "two-player games need discrete actions",
            env.env_id,
            "Use Discrete actions.",
        )
    if policy.use_true_chance_label_in_chance_encoder:
        codes = need(policy.model.chance_space_size, "policy.model.chance_space_size")
        if env.chance_size == 0:
            raise ConfigError(
                "policy.use_true_chance_label_in_chance_encoder",
                f"needs an environment that reports chance labels; {env.env_id} does not",
                True,
                "Set it to False: the encoder then learns its own codes.",
            )
        if env.chance_size > codes:
            raise ConfigError(
                "policy.model.chance_space_size",
                f"must hold the environment's {env.chance_size} chance labels",
                codes,
                f"Set it to {env.chance_size} or more.",
            )


def _check_model(model: ModelConfig, env: EnvSpec) -> None:
    wanted = "conv" if env.is_image else "mlp"
    if model.model_type != wanted:
        raise ConfigError(
            "policy.model.model_type",
            f"must be {wanted!r} for observations of shape {env.obs_shape}",
            model.model_type,
            "Leave the key out: it follows the observation space.",
        )
    for name in ("reward_support_range", "value_support_range"):
        start, stop, step = need(getattr(model, name), f"policy.model.{name}")
        if step < 1 or stop - start < 2 * step or start > 0 or stop <= 0:
            raise ConfigError(
                f"policy.model.{name}",
                "must be (start, stop, step) with start <= 0 < stop and at least two atoms",
                (start, stop, step),
                "For example (-50, 51, 1).",
            )
    _check_widths(model)


def _check_widths(model: ModelConfig) -> None:
    dim, heads = model.embed_dim, model.num_heads
    if dim is not None and heads is not None and dim % (2 * heads):
        raise ConfigError(
            "policy.model.embed_dim",
            f"must be a multiple of 2 * num_heads = {2 * heads}",
            dim,
            f"For example {2 * heads * max(1, dim // (2 * heads))}.",
        )
    if model.latent_norm == "simnorm":
        width = model.latent_state_dim if model.model_type == "mlp" else None
        for name, value in (("latent_state_dim", width), ("embed_dim", dim)):
            if value is not None and value % model.group_size:
                raise ConfigError(
                    f"policy.model.{name}",
                    f"must be a multiple of group_size = {model.group_size} with simnorm",
                    value,
                    f"For example {model.group_size * max(1, value // model.group_size)}.",
                )


def _check_replay(config: Config) -> None:
    policy = config.policy
    capacity = need(policy.replay_buffer_size, "policy.replay_buffer_size")
    batch = need(policy.batch_size, "policy.batch_size")
    length = need(policy.game_segment_length, "policy.game_segment_length")
    unroll = need(policy.num_unroll_steps, "policy.num_unroll_steps")
    start = need(policy.train_start_after_envsteps, "policy.train_start_after_envsteps")
    least = max(batch, 2 * length, unroll + policy.td_steps + 1)
    if capacity < least:
        raise ConfigError(
            "policy.replay_buffer_size",
            f"must be at least {least}: a batch ({batch}), two segments ({length} each) and one window "
            f"({unroll} unroll + {policy.td_steps} td steps)",
            capacity,
            "Enlarge the buffer or shrink policy.batch_size or policy.game_segment_length.",
        )
    if start >= capacity:
        raise ConfigError(
            "policy.train_start_after_envsteps",
            f"can never be reached with a buffer of {capacity} transitions",
            start,
            "Set it below policy.replay_buffer_size.",
        )
    if policy.max_env_step is not None and batch > policy.max_env_step:
        raise ConfigError(
            "policy.max_env_step",
            f"must allow one batch of {batch} transitions",
            policy.max_env_step,
            "Raise it, or lower policy.batch_size.",
        )


def _check_schedules(config: Config) -> None:
    policy = config.policy
    if policy.eps_end > policy.eps_start:
        raise ConfigError(
            "policy.eps_end",
            f"must not exceed policy.eps_start = {policy.eps_start}",
            policy.eps_end,
            "Swap the two values.",
        )
    if policy.piecewise_decay_lr_scheduler and policy.cos_lr_scheduler:
        raise ConfigError(
            "policy.cos_lr_scheduler",
            "cannot be combined with policy.piecewise_decay_lr_scheduler",
            True,
            "Switch one of them off.",
        )
    allowed = {"shift", "intensity"}
    unknown = [name for name in policy.augmentation if name not in allowed]
    if unknown:
        raise ConfigError(
            "policy.augmentation",
            "may hold 'shift' and 'intensity' only",
            policy.augmentation,
            "Use a subset of ('shift', 'intensity').",
        )
    if policy.use_augmentation and policy.model.model_type != "conv":
        raise ConfigError(
            "policy.use_augmentation",
            "needs image observations",
            True,
            "Set it to False for vector observations.",
        )
    if policy.ssl_loss_weight and not policy.model.self_supervised_learning_loss:
        if "ssl_loss_weight" in policy_spec(policy.type).own_keys:
            raise ConfigError(
                "policy.ssl_loss_weight",
                "needs policy.model.self_supervised_learning_loss=True",
                policy.ssl_loss_weight,
                "Set that key to True, or the weight to 0.",
            )


def _check_pipeline(config: Config) -> None:
    pipe, its = config.policy.async_pipeline, config.iteration
    most = need(pipe.max_collect_inflight, "policy.async_pipeline.max_collect_inflight")
    if most > pipe.num_collector_actors:
        raise ConfigError(
            "policy.async_pipeline.max_collect_inflight",
            f"must not exceed num_collector_actors = {pipe.num_collector_actors} (one collect per actor)",
            most,
            "Lower it, or add collector actors.",
        )
    if pipe.max_eval_inflight > pipe.num_evaluator_actors:
        raise ConfigError(
            "policy.async_pipeline.max_eval_inflight",
            f"must not exceed num_evaluator_actors = {pipe.num_evaluator_actors}",
            pipe.max_eval_inflight,
            "Lower it, or add evaluator actors.",
        )
    if its.min_time_s > its.max_time_s:
        raise ConfigError(
            "iteration.min_time_s",
            f"must not exceed iteration.max_time_s = {its.max_time_s}",
            its.min_time_s,
            "Lower it.",
        )
    _check_device("policy.device", config.policy.device)


def _check_device(dotted: str, value: str) -> None:
    kind, _, number = value.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (
        number and not (kind == "cuda" and number.isdigit())
    ):
        raise ConfigError(dotted, "must be auto, cpu, cuda or cuda:N", value, "For example 'cpu'.")
