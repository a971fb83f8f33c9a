"""Small settings for every row of the policy table on every kind of environment that suits it."""

from zero_tune.parsing import merge
from zero_tune.policies import POLICIES

SMALL = {
    "env": {
        "collector_env_num": 2,
        "evaluator_env_num": 2,
        "n_evaluator_episode": 2,
        "max_episode_steps": 12,
        "eval_max_episode_steps": 8,
    },
    "policy": {
        "num_simulations": 4,
        "batch_size": 8,
        "game_segment_length": 5,
        "num_unroll_steps": 3,
        "td_steps": 2,
        "train_start_after_envsteps": 10,
        "update_per_collect": 2,
        "max_train_iter": 4,
        "model": {"fc_hidden": 8, "num_channels": 8, "latent_state_dim": 16, "proj_hid": 16},
        "async_pipeline": {"enabled": False, "eval_at_start": True},
    },
    "iteration": {"min_time_s": 0.0},
    "seed": 3,
}
OWN = {
    "muzero_rnn_full_obs": {"model": {"rnn_hidden_size": 8}},
    "efficientzero": {"model": {"lstm_hidden_size": 8}},
    "sampled_efficientzero": {"model": {"lstm_hidden_size": 8}, "num_of_sampled_actions": 3},
    "sampled_muzero": {"num_of_sampled_actions": 3},
    "stochastic_muzero": {"model": {"chance_space_size": 4}},
    "unizero": {"model": {"embed_dim": 16}},
    "sampled_unizero": {"model": {"embed_dim": 16}, "num_of_sampled_actions": 3},
}
_LATENT_ONLY = ("latent_state_dim", "proj_hid")
KINDS = {
    "vector": "CartPole-v1",
    "image": "zero_tune/Catch-v0",
    "continuous": "Pendulum-v1",
    "masked": "zero_tune/ChanceMatch-v0",
}


def config_for(policy_type: str, kind: str) -> dict:
    """A user's dict for one row on one kind of environment."""
    data = merge(SMALL, {"env": {"env_id": KINDS[kind]}, "policy": {"type": policy_type}})
    data = merge(data, {"policy": OWN.get(policy_type, {})})
    if "model.latent_state_dim" not in POLICIES[policy_type].own_keys:
        model = {k: v for k, v in data["policy"]["model"].items() if k not in _LATENT_ONLY}
        data["policy"] = {**data["policy"], "model": model}
    return data


def rows() -> list[tuple[str, str]]:
    """(policy type, kind) pairs; only sampling rows act continuously."""
    out = []
    for name, spec in POLICIES.items():
        for kind in KINDS:
            if kind != "continuous" or spec.proposal == "sample":
                out.append((name, kind))
    return out
