"""Evaluation: one greedy episode per seed, repeatable to the bit."""

import dataclasses

import numpy as np
import pytest

from tests.contract.rows import config_for
from tests.fakes import ConstEnv
from zero_tune.assembly import build_evaluator, build_learner_side
from zero_tune.parsing import merge
from zero_tune.presets import resolve
from zero_tune.types import EvalTask

SEEDS = (11, 12, 13, 14, 15)


def setting(env="CartPole-v1", name="muzero", slots=3, **more):
    data = merge(
        config_for(name, "vector"),
        {"env": {"env_id": env, "evaluator_env_num": slots, "eval_max_episode_steps": 40, **more}},
    )
    return resolve(data)


def evaluated(config, env, snapshot, seeds=SEEDS):
    evaluator = build_evaluator(config, env)
    evaluator.load(snapshot)
    result = evaluator.evaluate(EvalTask(0, snapshot.version, 0, 0, seeds))
    evaluator.close()
    return result


def snapshot_of(config, env, seed=0, version=0):
    side = build_learner_side(dataclasses.replace(config, seed=seed), env)
    return dataclasses.replace(side.learner.snapshot(0), version=version)


@pytest.mark.parametrize("name", ["muzero", "unizero", "gumbel_muzero", "stochastic_muzero"])
def test_a_used_evaluator_repeats_the_score_of_a_fresh_one(name):
    config, env = setting(name=name)
    first, other = snapshot_of(config, env), snapshot_of(config, env, 5, 1)
    evaluator = build_evaluator(config, env)
    scores = []
    for weights in (first, other, first):
        evaluator.load(weights)
        scores.append(evaluator.evaluate(EvalTask(0, weights.version, 0, 0, SEEDS)))
    assert scores[0].episode_returns == scores[2].episode_returns
    assert scores[0].episode_returns == evaluated(config, env, first).episode_returns


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_results_come_in_seed_order_for_any_number_of_slots(slots):
    config, env = setting(slots=slots)
    result = evaluated(config, env, snapshot_of(config, env))
    assert len(result.episode_returns) == len(SEEDS) and result.seeds == SEEDS
    alone = [
        evaluated(config, env, snapshot_of(config, env), (s,)).episode_lengths[0] for s in SEEDS
    ]
    assert list(result.episode_lengths) == alone
    assert result.reward_mean == np.mean(result.episode_returns)


def test_an_episode_that_never_ends_is_cut_and_counted():
    config, env = setting(ConstEnv, kwargs={"end": "never"}, eval_max_episode_steps=15)
    result = evaluated(config, env, snapshot_of(config, env))
    assert set(result.episode_lengths) == {15} and result.num_truncated == len(SEEDS)
    assert np.isfinite(result.reward_mean)


def test_the_stop_value_is_compared_with_the_mean():
    for value, stop in ((5.0, True), (7.0, False)):
        config, env = setting(ConstEnv, stop_value=value)
        assert evaluated(config, env, snapshot_of(config, env)).stop is stop
