"""One agent step is four frames, whatever the id says."""

import numpy as np
import pytest

from zero_tune.config import EnvConfig
from zero_tune.envs.registry import inspect_env, make_env_batch, make_raw
from zero_tune.errors import ConfigError

pytestmark = pytest.mark.atari


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_ten_steps_are_forty_frames_without_stickiness(env_id):
    env = make_raw(EnvConfig(env_id=env_id), evaluate=False)
    env.reset(seed=0)
    before = env.ale.getEpisodeFrameNumber()
    for _ in range(10):
        obs, *_ = env.step(0)
    assert env.ale.getEpisodeFrameNumber() - before == 40
    assert env.ale.getFloat("repeat_action_probability") == 0.0
    assert obs.shape == (1, 64, 64) and obs.dtype == np.uint8
    assert env.action_space.n == 6


def test_stickiness_is_applied_when_asked_for():
    env = make_raw(EnvConfig(env_id="ALE/Pong-v5", repeat_action_probability=0.25), evaluate=False)
    assert env.ale.getFloat("repeat_action_probability") == 0.25
    assert inspect_env(EnvConfig(env_id="ALE/Pong-v5")).protocol["frame_skip"] == 4


@pytest.mark.parametrize("side, gray, shape", [(96, True, (1, 96, 96)), (84, False, (3, 84, 84))])
def test_sizes_and_colours(side, gray, shape):
    env = EnvConfig(env_id="ALE/Pong-v5", image_size=side, gray_scale=gray)
    assert inspect_env(env).obs_shape == shape


def test_the_full_action_space_has_eighteen_actions():
    assert inspect_env(EnvConfig(env_id="ALE/Pong-v5", full_action_space=True)).action.size == 18


@pytest.mark.parametrize("env_id", ["ALE/PongNoFrameskip-v4", "ALE/Nonsense-v5"])
def test_ids_that_do_not_exist_name_the_nearest(env_id):
    with pytest.raises(ConfigError, match="ALE/"):
        inspect_env(EnvConfig(env_id=env_id))


def test_rewards_are_clipped_for_learning_and_raw_in_returns():
    cfg = EnvConfig(env_id="ALE/Qbert-v5")
    batch = make_env_batch(cfg, 1, evaluate=False, worker_seed=0)
    batch.reset(np.arange(1))
    rng, rewards = np.random.default_rng(0), []
    for _ in range(400):
        step = batch.step(np.arange(1), rng.integers(0, 6, (1, 1)))
        rewards.append(float(step.reward[0]))
        if step.terminated[0] or step.truncated[0]:
            batch.reset(np.arange(1))
    assert set(rewards) <= {-1.0, 0.0, 1.0} and 1.0 in rewards
