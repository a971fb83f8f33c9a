"""What every row of the policy table must do, on every kind of environment that suits it."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

from tests.contract.rows import config_for, rows
from zero_tune import policies
from zero_tune.assembly import build_agent, build_collector, build_evaluator, build_learner_side
from zero_tune.errors import ConfigError
from zero_tune.pipeline.driver import Driver
from zero_tune.pipeline.local_pool import build_local_pool
from zero_tune.presets import resolve
from zero_tune.types import CollectTask, EvalTask

torch.set_num_threads(1)
ALL = [pytest.param(name, kind, id=f"{name}-{kind}") for name, kind in rows()]
#: One kind of environment per row in the default run, the others in the slow one.
MAIN = [
    pytest.param(
        name,
        kind,
        id=f"{name}-{kind}",
        marks=[] if kind in ("vector", "continuous") else [pytest.mark.slow],
    )
    for name, kind in rows()
]


def filled(config, env, segments=8):
    """Learner side with data from random weights."""
    side = build_learner_side(config, env)
    collector = build_collector(config, env, 0)
    collector.load(side.learner.snapshot(0))
    steps = 0
    while len(side.buffer.stats()) and side.buffer.num_drawable < 16:
        result = collector.collect(CollectTask(0, 0, 0, steps, 1.0, 0.0))
        for segment in result.segments:
            side.buffer.append(segment)
        steps += result.envstep_delta
    collector.close()
    return side


@pytest.mark.parametrize("name, kind", ALL)
def test_a_trial_runs_to_its_end_with_finite_losses(name, kind):
    config, env = resolve(config_for(name, kind))
    pool = build_local_pool(config, env)
    driver = Driver(config, build_learner_side(config, env), pool)
    reports = []
    while not reports or not reports[-1]["done"]:
        reports.append(driver.iterate())
        assert len(reports) < 60
    last = reports[-1]
    assert last["learners/train_iter"] == 4
    assert np.isfinite(last["learners/total_loss"])
    assert np.isfinite(last["evaluation/episode_return_mean"])
    assert last["evaluation/snapshot_version"] == 4  # the last version was evaluated
    assert last["buffer/ledger_error"] == 0
    assert {frozenset(r) for r in reports} == {frozenset(last)}  # one set of keys
    pool.shutdown(1.0)


@pytest.mark.parametrize("name, kind", MAIN)
def test_shapes_weights_and_batch_independence(name, kind):
    config, env = resolve(config_for(name, kind))
    side = filled(config, env)
    batch = side.batch_maker.make()
    size, steps = 8, 3
    slots = side.batch_maker.reanalyzer.search.num_slots
    assert batch.action.shape == (size, steps, env.action.dim)
    assert batch.targets.value.shape == (size, steps + 1)
    weights = batch.targets.policy.weights
    assert weights.shape == (size, steps + 1, slots)
    total = weights.sum(-1)[batch.targets.policy_mask > 0]
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)
    if env.action.kind == "discrete" and batch.targets.policy.actions is None:
        assert (weights * ~batch.targets.legal).sum() == 0  # no mass on illegal actions
    model = side.learner.model.eval()
    output = model.unroll(batch)
    assert output.policy.shape == (size, steps + 1, model.num_policy_params)
    assert output.value_logits.shape[:2] == (size, steps + 1)
    assert output.reward_logits.shape[:2] == (size, steps)
    reverse = torch.arange(size - 1, -1, -1)
    picked = dataclasses.replace(
        batch,
        obs=batch.obs[reverse],
        action=batch.action[reverse],
        timestep=batch.timestep[reverse],
        chance=None if batch.chance is None else batch.chance[reverse],
    )
    flipped = model.unroll(picked).value_logits[reverse]
    assert torch.allclose(flipped, output.value_logits, atol=1e-4)


@pytest.mark.parametrize("name, kind", MAIN)
def test_a_resumed_learner_makes_the_same_next_updates_to_the_bit(name, kind):
    config, env = resolve(config_for(name, kind))
    side = filled(config, env)
    side.learner.update(side.batch_maker.make())
    state = pickle.loads(pickle.dumps((side.learner.state_dict(), side.batch_maker.state_dict())))
    twin = build_learner_side(config, env)
    twin.learner.load_state_dict(state[0])
    batches = [side.batch_maker.make() for _ in range(2)]
    for batch in batches:
        side.learner.update(batch)
        twin.learner.update(batch)
    mine, theirs = side.learner.model.state_dict(), twin.learner.model.state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("name, kind", MAIN)
def test_same_seed_same_actions_and_same_score_for_the_same_snapshot(name, kind):
    config, env = resolve(config_for(name, kind))
    side = build_learner_side(config, env)
    snapshot = side.learner.snapshot(0)
    runs = []
    for _ in range(2):
        collector = build_collector(config, env, 1)
        collector.load(pickle.loads(pickle.dumps(snapshot)))
        result = collector.collect(CollectTask(0, 0, 0, 0, 1.0, 0.0))
        runs.append(np.concatenate([s.action for s in result.segments]))
        collector.close()
    assert np.array_equal(*runs)
    scores = []
    for _ in range(2):
        evaluator = build_evaluator(config, env)
        evaluator.load(snapshot)
        scores.append(evaluator.evaluate(EvalTask(0, 0, 0, 0, (7, 8, 9))).episode_returns)
        evaluator.close()
    assert scores[0] == scores[1]


@pytest.mark.parametrize("name, kind", MAIN)
def test_new_weights_leave_nothing_of_the_old_ones(name, kind):
    config, env = resolve(config_for(name, kind))
    old = build_learner_side(config, env).learner.snapshot(0)
    other = dataclasses.replace(config, seed=99)
    new = dataclasses.replace(build_learner_side(other, env).learner.snapshot(0), version=5)
    agents = [build_agent(config, env, seed=0, num_slots=2) for _ in range(2)]
    width = env.action.size if env.action.kind == "discrete" else 0
    rng = np.random.default_rng(0)
    for step in range(4):
        frames = rng.uniform(0, 1, (2, *env.obs_shape)).astype(env.obs_dtype)
        for agent, weights in zip(agents, (old if step < 3 else new, new), strict=True):
            agent.load(weights)
            agent.observe(np.arange(2), frames, np.ones((2, width), bool), np.full(2, -1, np.int8))
        results = [a.act(np.arange(2), np.full(2, step), explore=False) for a in agents]
        for agent in agents:
            agent.history.set_action(np.arange(2), results[1].action)
    assert np.array_equal(results[0].visit_counts, results[1].visit_counts)
    assert np.allclose(results[0].value, results[1].value, atol=1e-5)


def test_an_unlisted_combination_is_one_row_away(monkeypatch):
    base = policies.POLICIES["efficientzero"]
    row = dataclasses.replace(
        base, rule="gumbel", own_keys=base.own_keys | policies.POLICIES["gumbel_muzero"].own_keys
    )
    monkeypatch.setitem(policies.POLICIES, "gumbel_efficientzero", row)
    data = config_for("efficientzero", "vector")
    data["policy"] = {**data["policy"], "type": "gumbel_efficientzero", "gumbel_scale": 0.5}
    config, env = resolve(data)
    side = filled(config, env)
    output = side.learner.update(side.batch_maker.make())
    assert np.isfinite(output.total)


@pytest.mark.parametrize(
    "name", [n for n, s in policies.POLICIES.items() if s.proposal == "enumerate"]
)
def test_enumerating_rows_refuse_continuous_actions(name):
    with pytest.raises(ConfigError, match="sampled"):
        resolve(config_for(name, "continuous"))
