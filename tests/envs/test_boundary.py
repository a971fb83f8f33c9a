"""Spaces, masks, ends and errors at the environment boundary."""

import numpy as np
import pytest

from tests.fakes import (
    BadNumbers,
    CodeEnv,
    ConstEnv,
    ImgEnv,
    Lives,
    MaskEnv,
    Shifted,
    UnevenBox,
)
from zero_tune.config import EnvConfig
from zero_tune.envs.adapter import SlotEnv
from zero_tune.envs.registry import inspect_env, make_env_batch, make_raw, make_slot
from zero_tune.envs.spaces import action_codec, observation_codec
from zero_tune.errors import ConfigError, EnvError, NonFiniteError
from zero_tune.types import EnvSpec


def config(env, **kwargs):
    return EnvConfig(env_id=env, kwargs=kwargs)


def act(*values):
    return np.array([[v] for v in values], np.int32)


@pytest.mark.parametrize(
    "shape, dtype, frame",
    [
        ((8, 8, 3), "uint8", (3, 8, 8)),
        ((3, 8, 8), "uint8", (3, 8, 8)),
        ((84, 84), "uint8", (1, 84, 84)),
        ((1, 7, 7), "float32", (1, 7, 7)),
        ((3, 33, 51), "uint8", (3, 33, 51)),
        ((4, 64, 64), "uint8", (4, 64, 64)),
        ((3, 96, 96), "uint8", (3, 96, 96)),
    ],
)
def test_images_become_channel_first_and_keep_their_dtype(shape, dtype, frame):
    spec = inspect_env(config(ImgEnv, shape=shape, dtype=dtype))
    assert spec.obs_shape == frame and spec.obs_dtype == dtype and spec.family == "image"
    batch = make_env_batch(
        config(ImgEnv, shape=shape, dtype=dtype), 2, evaluate=False, worker_seed=0
    )
    obs = batch.reset(np.arange(2)).obs
    assert obs.shape == (2, *frame) and obs.dtype == dtype
    if shape == (8, 8, 3):
        raw = ImgEnv(shape, dtype)
        assert np.array_equal(obs[0], np.moveaxis(raw.reset(seed=0)[0], -1, 0))


def test_an_ambiguous_image_needs_a_layout_key():
    with pytest.raises(ConfigError, match="channel_layout"):
        inspect_env(config(ImgEnv, shape=(3, 3, 3)))
    for layout in ("channels_first", "channels_last"):
        env = EnvConfig(env_id=ImgEnv, kwargs={"shape": (3, 3, 3)}, channel_layout=layout)
        assert inspect_env(env).obs_shape == (3, 3, 3)


@pytest.mark.parametrize("size, start", [(3, 5), (2, -1)])
def test_discrete_spaces_may_start_anywhere(size, start):
    slot = make_slot(config(Shifted, n=size, start=start), evaluate=False)
    reading = slot.reset(0)
    assert slot.spec.action.size == size and slot.spec.obs_shape == (19,)
    assert reading.obs.tolist() == [1.0] + [0.0] * 18
    for index in range(size):
        slot.step(np.array([index]))
    assert slot.env.seen == list(range(start, start + size))


def test_box_actions_reach_both_uneven_bounds_and_keep_their_shape():
    slot = make_slot(config(UnevenBox), evaluate=False)
    slot.reset(0)
    codec = action_codec("x", UnevenBox().action_space)
    assert codec.to_env(np.array([-1.0, 1.0])).tolist() == [-2.0, 10.0]
    assert codec.to_env(np.array([1.0, -1.0])).tolist() == [2.0, 0.0]
    assert codec.to_env(np.array([0.0, 0.0])).tolist() == [0.0, 5.0]
    slot.step(np.array([0.99, -1.0], np.float32))


@pytest.mark.parametrize("through", ["info", "obs"])
def test_masks_are_found_without_being_announced(through):
    batch = make_env_batch(config(MaskEnv, through=through), 3, evaluate=False, worker_seed=0)
    rng, seen = np.random.default_rng(0), batch.reset(np.arange(3))
    for _ in range(40):
        choice = np.array([[rng.choice(np.flatnonzero(row))] for row in seen.legal])
        step = batch.step(np.arange(3), choice)
        seen = step.observation
        over = np.flatnonzero(step.terminated)
        if len(over):
            seen.legal[over] = batch.reset(over).legal
    slot = make_slot(config(MaskEnv), evaluate=False)
    reading = slot.reset(0)
    with pytest.raises(EnvError, match="illegal"):
        slot.step(np.array([int(np.argmin(reading.legal))]))


def test_rows_stay_with_their_slots_when_some_drop_out_and_return():
    CodeEnv.made = 0
    lengths = [3, 10, 17]
    cfg = EnvConfig(env_id=CodeEnv, kwargs={"strict": True, "lengths": lengths, "n": 3})
    batch = make_env_batch(cfg, 3, evaluate=False, worker_seed=0)
    seen, slots = batch.reset(np.arange(3)), np.arange(3)
    rng = np.random.default_rng(0)
    ids = seen.obs[:, 0].astype(int)
    for _ in range(200):
        chosen = np.sort(rng.choice(slots, rng.integers(1, 4), replace=False))
        step = batch.step(chosen, ids[chosen][:, None])
        over = chosen[step.terminated]
        if len(over):
            batch.reset(over)


def test_a_terminated_episode_has_exactly_its_transitions():
    batch = make_env_batch(config(ConstEnv, n=5), 2, evaluate=False, worker_seed=0)
    batch.reset(np.arange(2))
    for t in range(1, 6):
        step = batch.step(np.arange(2), act(0, 1))
        assert step.observation.obs[:, 0].tolist() == [t, t]
        assert step.terminated.tolist() == [t == 5] * 2
    assert step.episode_return.tolist() == [5.0, 5.0] and step.episode_length.tolist() == [5, 5]
    assert batch.reset(np.arange(2)).obs[:, 0].tolist() == [0.0, 0.0]


def test_limits_truncate_collection_and_evaluation_apart():
    cfg = EnvConfig(
        env_id=ConstEnv, kwargs={"end": "never"}, max_episode_steps=3, eval_max_episode_steps=5
    )
    for evaluate, most in ((False, 3), (True, 5)):
        batch = make_env_batch(cfg, 1, evaluate=evaluate, worker_seed=0)
        batch.reset(np.arange(1))
        for t in range(1, most + 1):
            step = batch.step(np.arange(1), act(0))
            assert bool(step.truncated[0]) == (t == most)
        assert bool(step.episode_over[0])


def lives_slot(life_loss_ends, cut=None):
    env = Lives(cut)
    obs, action = (
        observation_codec("Lives", env.observation_space, None),
        action_codec("Lives", env.action_space),
    )
    spec = EnvSpec("Lives", obs.shape, obs.dtype, action.spec)
    return SlotEnv(env, spec, obs, action, life_loss_ends=life_loss_ends)


def test_a_lost_life_ends_the_learning_episode_and_the_game_goes_on():
    slot = lives_slot(True)
    assert slot.reset(0).obs[0] == 0
    ends = []
    for t in range(1, 13):
        step = slot.step(np.array([0]))
        ends.append((step.terminated, step.episode_over))
        if step.terminated and not step.episode_over:
            assert slot.reset().obs[0] == t  # the same game goes on
    assert [i + 1 for i, (done, _) in enumerate(ends) if done] == [4, 8, 12]
    assert [i + 1 for i, (_, over) in enumerate(ends) if over] == [12]
    assert step.episode_return == 12.0 and step.episode_length == 12
    assert slot.reset().obs[0] == 0


def test_a_time_limit_in_the_middle_of_a_life_resets_the_return():
    slot = lives_slot(True, cut=6)
    for _ in range(2):
        slot.reset()
        for _ in range(4):
            slot.step(np.array([0]))
        slot.reset()
        slot.step(np.array([0]))
        step = slot.step(np.array([0]))
        assert step.truncated and step.episode_over and step.episode_return == 6.0


def test_in_evaluation_lives_do_not_matter():
    slot = lives_slot(False)
    slot.reset(0)
    done = [slot.step(np.array([0])).terminated for _ in range(12)]
    assert done == [False] * 11 + [True]


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_number_that_is_not_finite_is_named(what):
    slot = make_slot(config(BadNumbers, what=what), evaluate=False)
    slot.reset(0)
    slot.step(np.array([0]))
    slot.step(np.array([0]))
    with pytest.raises(NonFiniteError, match=what):
        slot.step(np.array([0]))


def test_an_observation_of_another_shape_is_an_error_naming_both():
    class Liar(ConstEnv):
        def _obs(self):
            return np.zeros(5 if self.t else 4, np.float32)

    slot = make_slot(config(Liar), evaluate=False)
    slot.reset(0)
    with pytest.raises(EnvError, match=r"\(5,\).*\(4,\)"):
        slot.step(np.array([0]))


def test_the_old_step_api_is_named_at_the_first_step():
    class Old(ConstEnv):
        def step(self, action):
            return self._obs(), 1.0, False, {}

    slot = make_slot(config(Old), evaluate=False)
    slot.reset(0)
    with pytest.raises(EnvError, match="terminated, truncated"):
        slot.step(np.array([0]))


def test_module_ids_callables_and_plain_ids_all_work():
    for env_id in ("CartPole-v1", "gymnasium.envs.classic_control:CartPole-v1", ConstEnv):
        assert inspect_env(EnvConfig(env_id=env_id)).obs_shape == (4,)


def test_the_original_exception_is_the_cause():
    with pytest.raises(ConfigError) as caught:
        make_raw(EnvConfig(env_id="Taxi-v3"), evaluate=False)
    assert caught.value.__cause__ is not None


def test_first_resets_are_seeded_per_slot_and_later_ones_go_on():
    cfg = EnvConfig(env_id="CartPole-v1")
    runs = []
    for _ in range(2):
        batch = make_env_batch(cfg, 2, evaluate=False, worker_seed=7)
        first = batch.reset(np.arange(2)).obs
        runs.append((first, batch.reset(np.arange(2)).obs))
        batch.close()
    assert np.array_equal(runs[0][0], runs[1][0]) and np.array_equal(runs[0][1], runs[1][1])
    assert not np.array_equal(runs[0][0][0], runs[0][0][1])
    assert not np.array_equal(runs[0][0], runs[0][1])
