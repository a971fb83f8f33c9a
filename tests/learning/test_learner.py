"""The learner: updates, guards, target network, resume."""

import contextlib
import dataclasses
import pickle

import numpy as np
import pytest
import torch

from tests.contract.rows import config_for
from tests.contract.test_rows import filled
from zero_tune.errors import NonFiniteError
from zero_tune.parsing import merge
from zero_tune.policies import POLICIES, loss_weights
from zero_tune.presets import resolve
from zero_tune.types import _map_tensors


def side_of(name="muzero", kind="vector", **policy):
    config, env = resolve(merge(config_for(name, kind), {"policy": policy}))
    return filled(config, env), config, env


def weights_of(learner):
    return {k: v.clone() for k, v in learner.model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def with_targets(batch, **changes):
    return dataclasses.replace(batch, targets=dataclasses.replace(batch.targets, **changes))


def test_the_target_is_copied_after_every_hundredth_update_buffers_included():
    side, _, _ = side_of(target_update_freq=5)
    learner, start = side.learner, weights_of(side.learner)
    for i in range(1, 11):
        learner.update(side.batch_maker.make())
        if i == 4:
            assert same(learner.target.state_dict(), start)
        if i in (5, 10):
            assert same(learner.target.state_dict(), learner.model.state_dict())
    assert learner.target_version == 2
    assert any("running_mean" in k for k in start)


def test_a_soft_target_moves_a_little_after_every_update():
    side, _, _ = side_of("unizero")
    before = {k: v.clone() for k, v in side.learner.target.state_dict().items()}
    side.learner.update(side.batch_maker.make())
    after, online = side.learner.target.state_dict(), side.learner.model.state_dict()
    for key, old in before.items():
        if old.is_floating_point():
            assert torch.allclose(after[key], old + 0.05 * (online[key] - old), atol=1e-6)


def test_bootstrap_values_are_computed_once_while_the_target_stands_still():
    side, _, _ = side_of(target_update_freq=1000)
    values, rows = side.batch_maker.values, np.arange(10)
    first = values(rows)
    count = values.evaluated_total
    assert np.array_equal(first, values(rows)) and values.evaluated_total == count
    side.learner.target_version += 1
    values(rows)
    assert values.evaluated_total == 2 * count


@pytest.mark.parametrize("field, name", [("value", "target/value"), ("reward", "target/reward")])
def test_a_bad_target_is_named_and_nothing_is_trained(field, name):
    side, _, _ = side_of()
    batch, before = side.batch_maker.make(), weights_of(side.learner)
    bad = getattr(batch.targets, field).clone()
    bad[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=name):
        side.learner.update(with_targets(batch, **{field: bad}))
    after = side.learner.model.state_dict()
    parameters = [k for k, _ in side.learner.model.named_parameters()]
    assert all(torch.equal(before[k], after[k]) for k in parameters)


def test_a_broken_weight_never_becomes_a_snapshot():
    side, _, _ = side_of()
    with torch.no_grad():
        next(side.learner.model.parameters()).fill_(float("inf"))
    with pytest.raises(NonFiniteError, match="weight"):
        side.learner.snapshot(0)


def test_a_huge_learning_rate_ends_with_a_named_quantity():
    side, _, _ = side_of(learning_rate=1e30, optim_type="SGD")
    with pytest.raises(NonFiniteError):
        for _ in range(50):
            side.learner.update(side.batch_maker.make())
            side.learner.snapshot(0)


def test_importance_weight_zero_removes_a_sample_entirely():
    side, _, _ = side_of()
    batch = side.batch_maker.make()
    learner = side.learner
    weight = torch.tensor([1.0] * 7 + [0.0])
    other = batch.targets.value.clone()
    other[7] += 100.0
    grads = []
    for b in (batch, with_targets(batch, value=other)):
        learner.model.eval()
        output = learner.model.unroll(b)
        terms = [w * t(output, b) for t, w in learner.losses.values()]
        loss = (weight * torch.stack(terms).sum(0)).mean()
        learner.model.zero_grad()
        loss.backward()
        grads.append([p.grad.clone() for p in learner.model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def gradients(learner, batch):
    """Loss per sample and the gradient of its mean, without batch statistics."""
    learner.model.eval()
    output = learner._finish(learner.model.unroll(batch), batch)
    loss = torch.stack([w * t(output, batch) for t, w in learner.losses.values()]).sum(0)
    learner.model.zero_grad()
    loss.mean().backward()
    return loss, [p.grad.clone() for p in learner.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_batch_twice_over_has_the_same_loss_and_gradient(name):
    side, _, _ = side_of(name)
    batch = side.batch_maker.make()
    once, single = gradients(side.learner, batch)
    twice, double = gradients(side.learner, _map_tensors(batch, lambda x: torch.cat([x, x])))
    assert torch.allclose(twice, torch.cat([once, once]), atol=1e-5)
    for a, b in zip(single, double, strict=True):
        assert torch.allclose(a, b, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("name", ["muzero", "unizero"])
def test_a_priority_is_the_error_of_the_value(name):
    side, _, _ = side_of(name)
    learner, batch = side.learner, side.batch_maker.make()
    learner.model.train()
    if name == "unizero":
        learner.model.eval()  # dropout draws anew
        learner._seeded_dropout = contextlib.nullcontext
        learner.model.train = lambda: learner.model
    with torch.no_grad():
        output = learner.model.unroll(batch)
        value = learner._value_support.decode(output.value_logits)
    gap, mask = (value - batch.targets.value).abs(), batch.targets.value_mask
    expected = gap[:, 0] if name == "muzero" else (gap * mask).sum(1) / mask.sum(1)
    got = learner.update(batch).priority
    assert np.allclose(got, expected.numpy() + 1e-6, rtol=1e-4, atol=1e-6)
    assert (got > 0).all()


def test_the_triplet_names_the_learners_counter():
    side, _, _ = side_of("unizero")
    for i in range(3):
        batch = side.batch_maker.make()
        current, target, train_iter = batch.to_triplet()
        assert train_iter == batch.train_iter == i
        assert current[0] is batch.obs and target[1] is batch.targets.value
        side.learner.update(batch)


def test_ten_updates_save_ten_more_equals_twenty():
    side, _, _ = side_of(target_update_freq=7)
    batches = [side.batch_maker.make() for _ in range(20)]
    for batch in batches[:10]:
        side.learner.update(batch)
    state = pickle.loads(pickle.dumps(side.learner.state_dict()))
    twin, _, _ = side_of(target_update_freq=7)
    twin.learner.load_state_dict(state)
    for batch in batches[10:]:
        side.learner.update(batch)
        twin.learner.update(batch)
    assert same(side.learner.model.state_dict(), twin.learner.model.state_dict())
    assert same(side.learner.target.state_dict(), twin.learner.target.state_dict())
    assert twin.learner.train_iter == 20


def test_the_configured_learning_rate_wins_over_a_restored_one():
    side, _, _ = side_of()
    side.learner.update(side.batch_maker.make())
    other, _, _ = side_of(learning_rate=1e-4)
    other.learner.load_state_dict(side.learner.state_dict())
    assert other.learner.optimizer.param_groups[0]["lr"] == 1e-4
    other.learner.update(side.batch_maker.make())
    assert other.learner.optimizer.param_groups[0]["lr"] == 1e-4


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_parameter_gets_a_gradient(name):
    side, config, _ = side_of(name)
    learner = side.learner
    with torch.no_grad():  # zero heads would hide what lies before them
        for p in learner.model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    batch = side.batch_maker.make()
    output = learner._finish(learner.model.train().unroll(batch), batch)
    total = sum(w * t(output, batch).mean() for t, w in learner.losses.values())
    learner.model.zero_grad()
    total.backward()
    silent = [n for n, p in learner.model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent, silent
    assert set(learner.losses) == set(loss_weights(config.policy))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "muzero" else [pytest.mark.slow]) for n in POLICIES]
)
def test_one_batch_can_be_learned_by_heart(name):
    side, _, _ = side_of(
        name, policy_entropy_weight=0.0, learning_rate=1e-2, optim_type="Adam", weight_decay=0.0
    )
    learner, batch = side.learner, side.batch_maker.make()
    if "next_latent" in learner.losses:
        learner.policy = dataclasses.replace(learner.policy, target_update_theta=1e-9)
    # A fresh model's targets are nearly uniform: nothing to learn. One drawn target per stored state.
    policy, rows = batch.targets.policy, side.buffer.window(batch.row).rows[:, :4]
    drawn = np.random.default_rng(0).dirichlet(np.ones(2), int(rows.max()) + 1)
    weights = torch.tensor(drawn[rows], dtype=torch.float32)
    batch = with_targets(batch, policy=dataclasses.replace(policy, weights=weights))
    first = learner.update(batch).terms
    for _ in range(300):
        last = learner.update(batch).terms
    floor = floors(learner, batch)
    for term in ("value", "reward", "policy"):
        assert last[term] - floor[term] < 0.1 * (first[term] - floor[term]), term
    for term in {"afterstate_policy", "next_latent"} & first.keys():
        assert last[term] < 0.1 * first[term], term
    if "consistency" in first:
        assert last["consistency"] < 0.9 * -3  # the cosine of each of three steps is one at best


def floors(learner, batch):
    """What a perfect guess costs under cross-entropy: the entropy of the targets."""
    targets = batch.targets

    def entropy(p, mask):
        return float((-torch.xlogy(p, p).sum(-1) * mask).sum(1).mean())

    support = learner._value_support.encode
    return {
        "policy": entropy(targets.policy.weights, targets.policy_mask),
        "value": entropy(support(targets.value), targets.value_mask),
        "reward": entropy(support(targets.reward), targets.reward_mask),
    }


def test_reanalysis_rewrites_the_chosen_rows_and_no_others():
    side, _, _ = side_of(reanalyze_ratio=0.5, reanalyze_outdated=False)
    maker, buffer = side.batch_maker, side.buffer
    sample = buffer.sample(8, np.random.default_rng(0))
    window = buffer.window(sample.row)
    chosen = set(window.rows[:4, :4][np.arange(4)[None] < window.num_real[:4, None]].tolist())
    everything = np.arange(buffer.num_rows)
    before = buffer.times_reanalyzed(everything).copy()
    maker._reanalyzed(window)
    changed = set(np.flatnonzero(buffer.times_reanalyzed(everything) != before).tolist())
    assert changed == chosen


@pytest.mark.parametrize("name", list(POLICIES))
def test_reanalysis_works_for_every_row(name):
    side, _, _ = side_of(name, reanalyze_ratio=1.0)
    output = side.learner.update(side.batch_maker.make())
    assert np.isfinite(output.total)
    assert side.reanalyzer.refresh(np.arange(6)) > 0


def test_reanalysis_searches_with_the_target_network():
    side, _, _ = side_of()
    calls = []
    model = side.learner.target_model
    side.batch_maker.reanalyzer.search = Recorder(side.batch_maker.reanalyzer.search, calls)
    side.batch_maker.reanalyzer.refresh(np.arange(4))
    assert calls == [model]


class Recorder:
    """A search that notes which model it was given."""

    def __init__(self, search, calls):
        self.search, self.calls, self.num_slots = search, calls, search.num_slots

    def run(self, model, *args, **kwargs):
        self.calls.append(model)
        return self.search.run(model, *args, **kwargs)
