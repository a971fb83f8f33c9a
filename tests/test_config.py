import pytest

from zero_tune.config import Config
from zero_tune.errors import ConfigError
from zero_tune.presets import resolve


def test_config_survives_a_round_trip_through_a_plain_dict():
    config, env = resolve({"env": {"env_id": "CartPole-v1"}, "policy": {"num_simulations": 7}})
    assert Config.from_dict(config.to_dict()) == config
    assert config.policy.collect_num_simulations == 7
    assert config.policy.model.observation_shape == (4,)
    assert resolve(config.to_dict(), env)[0] == config


def test_the_error_names_key_rule_value_and_nearest_key():
    with pytest.raises(ConfigError) as caught:
        resolve({"policy": {"num_simulatons": 3}})
    text = str(caught.value)
    for part in ("policy.num_simulatons", "unknown key", "3", "num_simulations"):
        assert part in text


def test_an_enumerating_policy_refuses_a_box_action_space_and_names_the_sampled_types():
    with pytest.raises(ConfigError, match="sampled_muzero"):
        resolve({"env": {"env_id": "Pendulum-v1"}})
