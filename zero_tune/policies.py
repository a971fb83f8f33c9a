"""The ten policy types: each is one row of WorldModel x Proposal x SelectionRule x loss terms.

This table is the only place where a policy's name decides anything. A new combination of existing
parts is a new row here and, if its defaults differ, one in ``presets.py``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zero_tune.config import PolicyConfig, need
from zero_tune.errors import ConfigError, nearest
from zero_tune.types import EnvSpec

if TYPE_CHECKING:
    import torch

    from zero_tune.interfaces import Search

_SEARCH_KEYS = frozenset({"root_dirichlet_alpha", "root_noise_weight"})
_GUMBEL_KEYS = frozenset(
    {"max_num_considered_actions", "gumbel_scale", "maxvisit_init", "value_scale"}
)
_SAMPLE_KEYS = frozenset(
    {
        "num_of_sampled_actions",
        "sampled_prior",
        "policy_loss_type",
        "normalize_prob_of_sampled_actions",
        "model.sigma_type",
        "model.fixed_sigma_value",
        "model.bound_type",
        "model.init_w",
    }
)
_CHANCE_KEYS = frozenset(
    {
        "chance_selection",
        "afterstate_policy_loss_weight",
        "afterstate_value_loss_weight",
        "commitment_loss_weight",
        "use_true_chance_label_in_chance_encoder",
        "model.chance_space_size",
    }
)
_PREFIX_KEYS = frozenset({"model.lstm_hidden_size", "model.lstm_horizon_len"})
_CONTEXT_KEYS = frozenset({"model.context_length_init"})
_RNN_KEYS = frozenset({"model.context_length_init", "model.rnn_hidden_size"})
_TOKEN_KEYS = frozenset(
    {
        "model.embed_dim",
        "model.num_layers",
        "model.num_heads",
        "model.dropout",
        "model.rotary_emb",
        "model.infer_context_length",
        "model.policy_logits_soft_clip",
        "latent_loss_weight",
        "adaptive_entropy",
        "target_entropy_start_ratio",
        "target_entropy_end_ratio",
        "target_entropy_decay_steps",
        "adaptive_entropy_lr",
        "encoder_clip_value",
        "policy_ls_eps_start",
        "policy_ls_eps_end",
        "policy_ls_eps_decay_steps",
        "kv_cache_clear_interval",
    }
)
_LATENT_KEYS = frozenset(
    {
        "ssl_loss_weight",
        "latent_grad_scale",
        "model.self_supervised_learning_loss",
        "model.proj_hid",
        "model.pred_hid",
        "model.latent_state_dim",
        "model.res_connection_in_dynamics",
        "model.discrete_action_encoding_type",
    }
)

_BASE_LOSSES = (
    ("policy", "policy_loss_weight"),
    ("value", "value_loss_weight"),
    ("reward", "reward_loss_weight"),
)
_CONSISTENCY = (("consistency", "ssl_loss_weight"),)
_ENTROPY = (("entropy", "policy_entropy_weight"),)
_CHANCE = (
    ("afterstate_policy", "afterstate_policy_loss_weight"),
    ("afterstate_value", "afterstate_value_loss_weight"),
    ("commitment", "commitment_loss_weight"),
)
_NEXT_LATENT = (("next_latent", "latent_loss_weight"),)


@dataclass(frozen=True)
class PolicySpec:
    """One row of the table.

    Args:
        world_model: ``module:Class`` below ``zero_tune.models``.
        proposal: ``enumerate`` or ``sample``.
        rule: ``puct`` or ``gumbel``.
        losses: (loss term, config key of its weight) pairs; a term with weight 0 is not built.
        own_keys: keys below ``policy.`` that only rows naming them understand.
        space: module of ``search_spaces`` that goes with it.
        value_prefix: the reward target is the running sum since the last reset.
    """

    world_model: str
    proposal: str
    rule: str
    losses: tuple[tuple[str, str], ...]
    own_keys: frozenset[str]
    space: str = "muzero"
    value_prefix: bool = False


POLICIES: dict[str, PolicySpec] = {
    "muzero": PolicySpec(
        "latent:LatentModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS,
    ),
    "muzero_context": PolicySpec(
        "context:ContextModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _CONTEXT_KEYS,
    ),
    "muzero_rnn_full_obs": PolicySpec(
        "history:HistoryModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _RNN_KEYS,
    ),
    "efficientzero": PolicySpec(
        "value_prefix:ValuePrefixModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _PREFIX_KEYS,
        value_prefix=True,
    ),
    "sampled_efficientzero": PolicySpec(
        "value_prefix:ValuePrefixModel",
        "sample",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _PREFIX_KEYS | _SAMPLE_KEYS,
        value_prefix=True,
        space="sampled",
    ),
    "sampled_muzero": PolicySpec(
        "latent:LatentModel",
        "sample",
        "puct",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _SAMPLE_KEYS,
        space="sampled",
    ),
    "gumbel_muzero": PolicySpec(
        "latent:LatentModel",
        "enumerate",
        "gumbel",
        _BASE_LOSSES + _CONSISTENCY + _ENTROPY,
        _LATENT_KEYS | _GUMBEL_KEYS,
        space="gumbel",
    ),
    "stochastic_muzero": PolicySpec(
        "afterstate:AfterstateModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _CHANCE + _CONSISTENCY + _ENTROPY,
        _SEARCH_KEYS | _LATENT_KEYS | _CHANCE_KEYS,
        space="stochastic",
    ),
    "unizero": PolicySpec(
        "token_model:TokenModel",
        "enumerate",
        "puct",
        _BASE_LOSSES + _NEXT_LATENT + _ENTROPY,
        _SEARCH_KEYS | _TOKEN_KEYS,
        space="unizero",
    ),
    "sampled_unizero": PolicySpec(
        "token_model:TokenModel",
        "sample",
        "puct",
        _BASE_LOSSES + _NEXT_LATENT + _ENTROPY,
        _SEARCH_KEYS | _TOKEN_KEYS | _SAMPLE_KEYS,
        space="unizero",
    ),
}

#: Keys that belong to some rows only; setting one elsewhere is an error, not a silent no-op.
SCOPED_KEYS: frozenset[str] = frozenset().union(*(spec.own_keys for spec in POLICIES.values()))


def policy_spec(name: str) -> PolicySpec:
    """The row of policy type ``name``.

    Raises:
        ConfigError: there is no such type; the text names the nearest one.
    """
    if name not in POLICIES:
        rule = f"must be one of {', '.join(POLICIES)}"
        raise ConfigError("policy.type", rule, name, nearest(str(name), POLICIES))
    return POLICIES[name]


def build_model(policy: PolicyConfig, env: EnvSpec) -> torch.nn.Module:
    """A freshly initialised world model of ``policy.type`` for ``env``.

    Draws from torch's global generator; callers fork and seed it (``seeded_model``).
    """
    module, name = policy_spec(policy.type).world_model.split(":")
    cls: Any = getattr(importlib.import_module(f"zero_tune.models.{module}"), name)
    model: torch.nn.Module = cls(policy, env)
    return model


def seeded_model(policy: PolicyConfig, env: EnvSpec, seed: int) -> torch.nn.Module:
    """``build_model`` with weights that depend on ``seed`` alone; the global generator is untouched."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(policy, env)


def build_search(policy: PolicyConfig, env: EnvSpec) -> Search:
    """The search of ``policy.type``."""
    from zero_tune.search.search import build_search as build

    spec = policy_spec(policy.type)
    return build(policy, env, proposal=spec.proposal, rule=spec.rule)


def loss_weights(policy: PolicyConfig) -> dict[str, float]:
    """Loss terms of ``policy.type`` that have a weight, by name."""
    weights = {
        term: float(need(getattr(policy, key), f"policy.{key}"))
        for term, key in policy_spec(policy.type).losses
    }
    return {term: weight for term, weight in weights.items() if weight != 0.0}
