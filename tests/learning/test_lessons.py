"""What a few hundred updates teach a model, and what they must not teach it."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from tests.contract.rows import config_for
from tests.contract.test_rows import filled
from tests.fakes import ConstEnv
from zero_tune.parsing import merge
from zero_tune.policies import POLICIES
from zero_tune.presets import resolve

torch.set_num_threads(1)


class Endless(ConstEnv):
    """One point per step for ever; what is seen says nothing about the time left."""

    def __init__(self, end="truncated"):
        super().__init__(8, end)

    def _obs(self):
        return self.np_random.normal(size=4).astype(np.float32)


class Nothing(Endless):
    """A hundred actions and no reward at all."""

    def __init__(self):
        super().__init__()
        self.action_space = gym.spaces.Discrete(100)

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, 0.0, *rest


def side_of(env_id, name="muzero", env=None, **policy):
    changes = {"env": {"env_id": env_id, **(env or {})}, "policy": policy}
    config, spec = resolve(merge(config_for(name, "vector"), changes))
    return filled(config, spec)


@pytest.mark.parametrize("end", ["truncated", "terminated"])
def test_a_time_limit_does_not_look_like_an_end(end):
    """A cut bootstraps from what lies behind it: 1 / (1 - 0.9) = 10. A true end after 8 steps does not."""
    side = side_of(
        Endless,
        env={"kwargs": {"end": end}},
        discount_factor=0.9,
        target_update_freq=10,
        learning_rate=0.01,
        optim_type="Adam",
        weight_decay=0.0,
    )
    for _ in range(500):
        side.learner.update(side.batch_maker.make())
    values = side.batch_maker.values(np.arange(side.buffer.num_rows))
    if end == "truncated":
        assert abs(values.mean() - 10.0) < 0.5
    else:
        assert values.mean() < 6.0  # on average over 8, 7, .. 1 steps still to go: 3.97


@pytest.mark.parametrize("name", list(POLICIES))
def test_without_any_reward_the_policy_stays_broad(name):
    own = {"num_of_sampled_actions": 8} if POLICIES[name].proposal == "sample" else {}
    side = side_of(Nothing, name, num_simulations=25, **own)
    for _ in range(50):
        batch = side.batch_maker.make()
        side.learner.update(batch)
    with torch.no_grad():
        policy = side.learner.model.eval().unroll(batch).policy[:, 0]
    entropy = torch.distributions.Categorical(logits=policy).entropy()
    assert float(entropy.mean()) >= 0.9 * np.log(100)
