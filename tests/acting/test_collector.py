"""Collectors: what they store is what happened, once."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.contract.rows import config_for
from tests.fakes import CodeEnv, ConstEnv, MaskEnv
from zero_tune.assembly import build_collector, build_learner_side
from zero_tune.parsing import merge
from zero_tune.policies import POLICIES
from zero_tune.presets import resolve
from zero_tune.types import CollectTask


def setting(env, envs=3, segments=3, length=10, name="muzero", **more):
    data = merge(
        config_for(name, "vector"),
        {
            "env": {"env_id": env, "collector_env_num": envs, "max_episode_steps": None, **more},
            "policy": {
                "num_segments": segments,
                "game_segment_length": length,
                "num_simulations": 2,
            },
        },
    )
    return resolve(data)


def task(number=0, **values):
    return dataclasses.replace(CollectTask(number, 0, 0, 0, 1.0, 0.0), **values)


def collected(config, env, collects, actor_id=0, **values):
    collector = build_collector(config, env, actor_id)
    collector.load(build_learner_side(config, env).learner.snapshot(0))
    results = [collector.collect(task(i, **values)) for i in range(collects)]
    collector.close()
    return results


def test_pieces_of_each_episode_fit_together_over_thirty_collects():
    CodeEnv.made = 0
    config, env = setting(CodeEnv, envs=2, segments=2)
    results = collected(config, env, 30)
    pieces = {}
    for result in results:
        for segment in result.segments:
            pieces.setdefault((segment.stream_id, segment.episode_id), []).append(segment)
    whole = 0
    for parts in pieces.values():
        steps = np.concatenate([p.timestep for p in parts])
        assert np.array_equal(steps, np.arange(len(steps)))
        shown = np.concatenate([p.obs[:-1] for p in parts])
        assert np.array_equal(shown[:, 2], steps) and len(np.unique(shown[:, :2], axis=0)) == 1
        for before, after in itertools.pairwise(parts):
            assert np.array_equal(before.obs[-1], after.obs[0]) and not before.terminated
        if parts[-1].terminated:
            whole += 1
            assert len(steps) == 37 and parts[-1].obs[-1, 2] == 37  # its own final observation
    assert whole > 5
    stored = sum(len(s) for r in results for s in r.segments)
    assert sum(r.envstep_delta for r in results) == stored + results[-1].open_steps


@pytest.mark.parametrize("segments", [1, 2, 4, 8])
@pytest.mark.parametrize("actors", [1, 2])
def test_env_and_segment_counts_need_not_agree(segments, actors):
    config, env = setting(ConstEnv, envs=3, segments=segments, length=4)
    for actor in range(actors):
        results = collected(config, env, 4, actor)
        assert all(len(r.segments) >= segments for r in results)
        stored = sum(len(s) for r in results for s in r.segments)
        assert sum(r.envstep_delta for r in results) == stored + results[-1].open_steps


def test_episode_returns_are_those_of_whole_games():
    config, env = setting(ConstEnv, envs=2, segments=6, length=4)
    results = collected(config, env, 3)
    returns = [x for r in results for x in r.episode_returns]
    lengths = [x for r in results for x in r.episode_lengths]
    assert returns and set(returns) == {6.0} and set(lengths) == {6}


@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.parametrize("random_policy", [False, True])
def test_only_legal_actions_are_played_and_taught(name, random_policy):
    config, env = setting(MaskEnv, name=name, segments=6)
    for result in collected(config, env, 3, random_policy=random_policy):
        for segment in result.segments:
            legal = segment.legal[np.arange(len(segment)), segment.action[:, 0]]
            assert legal.all()
            if segment.candidates is None:
                assert (segment.weights[~segment.legal[:-1]] == 0).all()
            assert np.allclose(segment.weights.sum(1), 1.0, atol=1e-5)


def test_random_warm_up_is_uniform_over_actions():
    config, env = setting(ConstEnv, envs=4, segments=4, length=6)
    results = collected(config, env, 40, random_policy=True)
    actions = np.concatenate([s.action[:, 0] for r in results for s in r.segments])
    assert abs(actions.mean() - 0.5) < 0.06


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_action_is_tried_early_on(name):
    config, env = setting(MaskEnv, name=name, segments=8, length=10)
    results = collected(config, env, 8)
    seen = np.concatenate([s.action[:, 0] for r in results for s in r.segments])
    assert set(seen) == {0, 1, 2, 3}


def test_the_same_seed_repeats_and_another_actor_differs():
    config, env = setting("CartPole-v1")
    runs = [collected(config, env, 2, actor) for actor in (0, 0, 1)]
    first, again, other = [[s.obs for r in run for s in r.segments] for run in runs]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_streams_are_unique_over_slots_actors_and_incarnations():
    config, env = setting(ConstEnv)
    streams = []
    for actor in (0, 1):
        for incarnation in (0, 1, 2):
            collector = build_collector(config, env, actor, incarnation)
            streams += list(collector._streams)
            collector.close()
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize("name", ["muzero", "muzero_context", "unizero"])
def test_clearing_caches_between_steps_changes_nothing(name):
    config, env = setting("CartPole-v1", name=name)
    plain = collected(config, env, 2)
    collector = build_collector(config, env, 0)
    collector.load(build_learner_side(config, env).learner.snapshot(0))
    calls = []
    model = collector._agent.model
    clear = model.clear_caches
    model.clear_caches = lambda: (calls.append(1), clear())
    collector._clear_every = 3
    cleared = [collector.collect(task(i)) for i in range(2)]
    assert calls
    for a, b in zip(plain, cleared, strict=True):
        for x, y in zip(a.segments, b.segments, strict=True):
            assert np.array_equal(x.action, y.action) and np.array_equal(x.root_value, y.root_value)


def test_new_weights_call_the_cache_hook_and_the_same_version_is_free():
    config, env = setting("CartPole-v1")
    snapshot = build_learner_side(config, env).learner.snapshot(0)
    collector = build_collector(config, env, 0)
    calls = []
    model = collector._agent.model
    hook = model.recompute_pos_emb_diff_and_clear_cache
    model.recompute_pos_emb_diff_and_clear_cache = lambda: (calls.append(1), hook())
    collector.load(snapshot)
    collector.load(snapshot)
    assert len(calls) == 1
    collector.load(dataclasses.replace(snapshot, version=9))
    assert len(calls) == 2


def test_returned_arrays_are_owned_copies():
    config, env = setting(ConstEnv, envs=2, segments=2, length=4)
    collector = build_collector(config, env, 0)
    collector.load(build_learner_side(config, env).learner.snapshot(0))
    first = collector.collect(task())
    kept = [s.obs.copy() for s in first.segments]
    collector.collect(task())
    assert all(np.array_equal(s.obs, k) for s, k in zip(first.segments, kept, strict=True))
