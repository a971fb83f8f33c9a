"""Every bad setting is refused at construction, with key, rule, value and remedy in the text."""

import gymnasium as gym
import numpy as np
import pytest

from zero_tune.errors import ConfigError
from zero_tune.presets import resolve


class Spaces(gym.Env):
    """An environment with the spaces it is told."""

    def __init__(self, obs=None, action=None):
        self.observation_space = obs or gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = action or gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class OldApi(Spaces):
    def reset(self, **kwargs):
        return self.observation_space.sample()


def vector_env(mode):
    return gym.make_vec(
        "CartPole-v1", num_envs=2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )


def raises():
    raise RuntimeError("no display")


box = gym.spaces.Box
pol = lambda **k: {"policy": k}  # noqa: E731
model = lambda **k: {"policy": {"model": k}}  # noqa: E731
pipe = lambda **k: {"policy": {"async_pipeline": k}}  # noqa: E731
env = lambda **k: {"env": k}  # noqa: E731

# config, key in the text, part of the rule, shown value, part of the remedy
CASES = [
    ({"polcy": {}}, "polcy", "unknown key", "{}", "policy"),
    (pol(learning_rte=0.1), "policy.learning_rte", "unknown key", "0.1", "learning_rate"),
    (pol(image_size=64), "policy.image_size", "unknown key", "64", "env.image_size"),
    (env(batch_size=64), "env.batch_size", "unknown key", "64", "policy.batch_size"),
    (model(frame_stak_num=4), "policy.model.frame_stak_num", "unknown", "4", "frame_stack_num"),
    (env(observation_shap=4), "env.observation_shap", "unknown", "4", "observation_shape"),
    (pol(type="muzro"), "policy.type", "must be one of", "muzro", "muzero"),
    (pol(num_simulations=0), "policy.num_simulations", ">= 1", "0", "Set a value"),
    (pol(num_simulations=2.5), "policy.num_simulations", "must be int", "2.5", "type int"),
    (pol(num_simulations="50"), "policy.num_simulations", "must be int", "'50'", "type int"),
    (pol(discount_factor=1.5), "policy.discount_factor", "<= 1", "1.5", "Set a value"),
    (pol(discount_factor=float("nan")), "policy.discount_factor", "a number", "nan", "NaN"),
    (pol(learning_rate=0), "policy.learning_rate", "> 0", "0", "Set a value"),
    (pol(learning_rate=-1e-3), "policy.learning_rate", "> 0", "-0.001", "Set a value"),
    (pol(batch_size=True), "policy.batch_size", "must be int", "True", "type int"),
    (pol(use_priority=1), "policy.use_priority", "must be bool", "1", "type bool"),
    (pol(optim_type="Adm"), "policy.optim_type", "must be one of", "Adm", "Adam"),
    (pol(unvisited_q="mean"), "policy.unvisited_q", "must be one of", "mean", "parent_mean"),
    (pol(truncation="boot"), "policy.truncation", "must be one of", "boot", "bootstrap"),
    (pol(reanalyze_ratio=2), "policy.reanalyze_ratio", "<= 1", "2", "Set a value"),
    (pol(reanalyze_partition=0), "policy.reanalyze_partition", "> 0", "0", "Set a value"),
    (pol(td_steps=0), "policy.td_steps", ">= 1", "0", "Set a value"),
    (pol(eps_end=0.9, eps_start=0.1), "policy.eps_end", "eps_start", "0.9", "Swap"),
    (pol(augmentation=["flip"]), "policy.augmentation", "shift", "flip", "subset"),
    (pol(use_augmentation=True), "policy.use_augmentation", "image", "True", "False"),
    (pol(replay_buffer_size=100), "policy.replay_buffer_size", "at least", "100", "Enlarge"),
    (
        pol(train_start_after_envsteps=10**6),
        "policy.train_start_after_envsteps",
        "never be reached",
        "1000000",
        "replay_buffer_size",
    ),
    (pol(max_env_step=10), "policy.max_env_step", "one batch", "10", "Raise it"),
    (pol(device="gpu"), "policy.device", "auto, cpu, cuda", "gpu", "cpu"),
    (
        pol(piecewise_decay_lr_scheduler=True, cos_lr_scheduler=True),
        "policy.cos_lr_scheduler",
        "combined",
        "True",
        "off",
    ),
    (pol(gumbel_scale=2.0), "policy.gumbel_scale", "only by gumbel_muzero", "2.0", "Remove"),
    (
        pol(type="gumbel_muzero", root_noise_weight=0.5),
        "policy.root_noise_weight",
        "not used",
        "0.5",
        "Remove",
    ),
    (
        pol(model={"self_supervised_learning_loss": False}, ssl_loss_weight=1.0),
        "policy.ssl_loss_weight",
        "self_supervised_learning_loss",
        "1.0",
        "weight to 0",
    ),
    (
        pol(type="stochastic_muzero", use_true_chance_label_in_chance_encoder=True),
        "policy.use_true_chance_label_in_chance_encoder",
        "chance labels",
        "True",
        "False",
    ),
    (model(observation_shape=[5]), "policy.model.observation_shape", "(4,)", "(5,)", "Leave"),
    (model(action_space_size=3), "policy.model.action_space_size", "2", "3", "Leave"),
    (model(model_type="conv"), "policy.model.model_type", "'mlp'", "conv", "Leave"),
    (model(norm_type="batch"), "policy.model.norm_type", "one of", "batch", ""),
    (
        model(value_support_range=[5, 0, 1]),
        "policy.model.value_support_range",
        "start <= 0",
        "(5, 0, 1)",
        "(-50, 51, 1)",
    ),
    (
        model(value_support_range=[0, 1]),
        "policy.model.value_support_range",
        "3 entries",
        "[0, 1]",
        "",
    ),
    (
        {"policy": {"type": "unizero", "model": {"embed_dim": 70, "num_heads": 4}}},
        "policy.model.embed_dim",
        "multiple of",
        "70",
        "64",
    ),
    (pipe(num_collector_actors=0), "policy.async_pipeline.num_collector_actors", ">= 1", "0", ""),
    (
        pipe(max_collect_inflight=3),
        "policy.async_pipeline.max_collect_inflight",
        "exceed",
        "3",
        "actors",
    ),
    (pipe(max_eval_inflight=3), "policy.async_pipeline.max_eval_inflight", "exceed", "3", "actors"),
    (pipe(poll_interval_s=0), "policy.async_pipeline.poll_interval_s", "> 0", "0", ""),
    (
        pipe(placement_strategy="pack"),
        "policy.async_pipeline.placement_strategy",
        "one of",
        "pack",
        "PACK",
    ),
    ({"iteration": {"min_time_s": 60}}, "iteration.min_time_s", "max_time_s", "60", "Lower"),
    ({"seed": -1}, "seed", ">= 0", "-1", "Set a value"),
    ({"policy": 3}, "policy", "mapping", "3", ""),
    (env(env_id="CartPol-v1"), "env.env_id", "could not be made", "CartPol-v1", "CartPole-v1"),
    (env(env_id="Taxi-v3"), "env.env_id", "could not be made", "Taxi-v3", "Taxi-v4"),
    (env(env_id="nowhere:X-v0"), "env.env_id", "could not be made", "nowhere", "module:id"),
    (env(env_id="ALE/Nonsense-v5"), "env.env_id", "no such game", "Nonsense", "ALE/"),
    (env(env_id="Pendulum-v1"), "policy.type", "Box action space", "muzero", "sampled_muzero"),
    (env(env_id=raises), "env.env_id", "no display", "raises", "callable"),
    (env(env_id=OldApi), "env.env_id", "gymnasium API", "OldApi", "Wrap"),
    *[
        (
            env(env_id=vector_env, kwargs={"mode": mode}),
            "env.env_id",
            "vector of 2",
            "vector_env",
            "collector_env_num",
        )
        for mode in gym.vector.AutoresetMode
    ],
    (env(image_size=65), "env.image_size", "one of", "65", "64"),
    (
        env(env_id=Spaces, kwargs={"action": gym.spaces.MultiDiscrete([2, 3])}),
        "env.env_id",
        "Discrete or Box",
        "Spaces",
        "wrapper",
    ),
    (
        {
            "env": {"env_id": Spaces, "kwargs": {"action": box(-np.inf, np.inf, (2,), np.float32)}},
            "policy": {"type": "sampled_muzero"},
        },
        "env.env_id",
        "infinite bounds",
        "Spaces",
        "RescaleAction",
    ),
    (
        env(env_id=Spaces, kwargs={"obs": box(0, 255, (3, 3, 3), np.uint8)}),
        "env.channel_layout",
        "both ways",
        "None",
        "channels_first",
    ),
    (
        env(env_id=Spaces, kwargs={"obs": gym.spaces.Text(5)}),
        "env.env_id",
        "Box or Discrete",
        "Spaces",
        "Flatten",
    ),
]


@pytest.mark.parametrize("config, key, rule, value, remedy", CASES)
def test_a_bad_config_is_refused_with_key_rule_value_and_remedy(config, key, rule, value, remedy):
    with pytest.raises(ConfigError) as caught:
        resolve(config)
    text = str(caught.value)
    assert text.startswith(key + ":"), text
    for part in (rule, value, remedy):
        assert part in text, text


def test_there_are_at_least_forty_of_them():
    assert len(CASES) >= 40


def test_an_error_survives_pickling():
    import pickle

    error = ConfigError("a.b", "must be 1", 2, "Set 1.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
