"""Sampled candidates: which actions are drawn, with what prior, and how slots are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.tree_search import Step
from tests.search.helpers import generators, make_search, run
from tests.search.scalar_world import ScalarWorld
from tests.search.table_world import TableWorld
from zero_tune.types import SearchResult

LOGITS = [1.2, 0.0, -0.7, 0.4]


def draw(
    params: list[float], batch: int, *, explore: bool = False, size: int = 0, **settings: Any
) -> SearchResult:
    """One simulation over rows that all have these policy parameters."""
    world = ScalarWorld(lambda state, action: Step(0.0, 0.0, params, None))
    continuous = bool(settings.get("continuous"))
    size = size or len(params)
    search = make_search(size, num_simulations=1, **settings)
    legal = np.ones((batch, 0 if continuous else size), np.bool_)
    return search.run(
        world,
        world.roots([Step(0.0, 0.0, params, None)] * batch),
        legal,
        np.full(batch, -1, np.int8),
        generators(batch, seed=3),
        explore=explore,
    )


def test_discrete_draws_are_successive_draws_without_replacement() -> None:
    """P(first a, then b) = p_a p_b / (1 - p_a)."""
    batch = 40_000
    actions = draw(LOGITS, batch, sampled=2).target.actions[:, :, 0]
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    for a in range(4):
        for b in range(4):
            share = np.mean((actions[:, 0] == a) & (actions[:, 1] == b))
            expected = 0.0 if a == b else p[a] * p[b] / (1 - p[a])
            assert share == pytest.approx(expected, abs=0.008)


def test_discrete_prior_is_the_policy_over_the_draws() -> None:
    result = draw(LOGITS, 50, sampled=3)
    for b in range(50):
        weights = np.exp(np.array(LOGITS)[result.target.actions[b, :, 0]])
        np.testing.assert_allclose(result.root_policy[b], weights / weights.sum(), rtol=1e-5)
    uniform = draw(LOGITS, 50, sampled=3, sampled_prior="uniform")
    np.testing.assert_allclose(uniform.root_policy, 1 / 3, rtol=1e-6)


def test_as_many_slots_as_actions_is_the_enumerating_search() -> None:
    states = [3, 104, 205, 4000]
    for rule in ("puct", "gumbel"):
        for slots in (6, 20):
            everything = make_search(6, rule=rule, num_simulations=60)
            sampled = make_search(6, sampled=slots, rule=rule, num_simulations=60)
            assert sampled.num_slots == 6
            a = run(everything, TableWorld(6), states, explore=True, legal=[0, 1, 2, 3, 4, 5])
            b = run(sampled, TableWorld(6), states, explore=True, legal=[0, 1, 2, 3, 4, 5])
            np.testing.assert_array_equal(a.visit_counts, b.visit_counts)
            np.testing.assert_array_equal(a.value, b.value)
            np.testing.assert_array_equal(a.action, b.action)


@pytest.mark.parametrize("rule", ["puct", "gumbel"])
@pytest.mark.parametrize(("actions", "legal", "slots"), [(10, [2, 5, 9], 5), (200, [150, 199], 4)])
def test_fewer_legal_actions_than_slots(
    rule: str, actions: int, legal: list[int], slots: int
) -> None:
    search = make_search(actions, sampled=slots, rule=rule, num_simulations=30)
    for explore in (False, True):
        result = run(
            search, TableWorld(actions), list(range(40)), legal=legal, explore=explore, epsilon=0.5
        )
        used = len(legal)
        assert result.target.weights.shape == (40, slots)
        assert (result.target.actions[:, :used, 0] == legal).all()
        assert (result.visit_counts[:, used:] == 0).all()
        assert (result.target.weights[:, used:] == 0).all()
        np.testing.assert_allclose(result.target.weights.sum(axis=1), 1.0, atol=1e-5)
        assert np.isin(result.action, legal).all()


def test_more_legal_actions_than_slots_draws_only_legal_ones() -> None:
    legal = [1, 3, 4, 8, 9]
    search = make_search(10, sampled=3, num_simulations=20)
    result = run(search, TableWorld(10), list(range(200)), legal=legal, explore=True)
    assert np.isin(result.target.actions, legal).all()
    for row in result.target.actions[:, :, 0]:
        assert len(set(row.tolist())) == 3
    assert len(np.unique(result.target.actions)) == 5


def test_one_legal_action_takes_every_visit() -> None:
    search = make_search(10, sampled=5, num_simulations=12)
    result = run(search, TableWorld(10), [3, 5], legal=[7], explore=True)
    assert (result.visit_counts == [12, 0, 0, 0, 0]).all()
    assert (result.action == 7).all()
    assert (result.entropy == 0).all()


def test_a_policy_that_excludes_actions_still_fills_the_slots() -> None:
    """Probabilities that underflow leave the draw defined: every slot another action."""
    result = draw([500.0, 0.0, 0.0, 0.0, 0.0], 300, sampled=3)
    for row in result.target.actions[:, :, 0]:
        assert 0 in row and len(set(row.tolist())) == 3


def test_gaussian_draws() -> None:
    mu, sigma = [0.3, -0.5], [0.7, 0.4]
    result = draw([*mu, *sigma], 4000, size=2, sampled=8, continuous=True)
    actions = result.target.actions
    assert actions.shape == (4000, 8, 2) and actions.dtype == np.float32
    assert np.abs(actions).max() < 1.0
    u = np.arctanh(actions.astype(np.float64)).reshape(-1, 2)
    np.testing.assert_allclose(u.mean(axis=0), mu, atol=0.02)
    np.testing.assert_allclose(u.std(axis=0), sigma, atol=0.02)
    assert abs(np.corrcoef(u.T)[0, 1]) < 0.02
    pairs = np.arctanh(actions.astype(np.float64))
    assert abs(np.corrcoef(pairs[:, 0, 0], pairs[:, 1, 0])[0, 1]) < 0.05
    np.testing.assert_allclose(result.root_policy, 1 / 8, rtol=1e-6)
    assert np.abs(u).max() > 2.0


def test_actions_stay_inside_the_box_however_wide_the_policy() -> None:
    result = draw([0.0, 50.0], 500, size=1, sampled=4, continuous=True)
    assert np.abs(result.target.actions).max() <= np.float32(1 - 1e-6) < 1.0
    assert np.abs(result.target.actions).max() > 0.999


def test_exploring_root_mixes_in_uniform_actions_and_corrects_the_prior() -> None:
    """Sampled MuZero: prior beta_hat / beta * pi, with beta the mixture of policy and box."""
    mu, sigma, slots, weight = 0.4, 0.1, 10, 0.25
    settings: dict[str, Any] = {"size": 1, "sampled": slots, "continuous": True}
    result = draw(
        [mu, sigma],
        3000,
        explore=True,
        root_noise_weight=weight,
        root_dirichlet_alpha=1e6,
        **settings,
    )
    actions = result.target.actions[:, :, 0].astype(np.float64)
    u = (np.arctanh(actions) - mu) / sigma
    assert np.abs(u[:, :7]).max() < 6
    broad = actions[:, 7:].ravel()  # ceil(2.5) = 3 slots
    assert broad.mean() == pytest.approx(0.0, abs=0.03)
    assert broad.var() == pytest.approx(1 / 3, abs=0.03)
    density = np.exp(-0.5 * u**2) / (sigma * np.sqrt(2 * np.pi)) / (1 - actions**2)
    expected = density / (0.7 * density + 0.3 * 0.5)
    expected /= expected.sum(axis=1, keepdims=True)
    mixed = 0.75 * expected + 0.25 / slots  # a huge alpha makes the noise uniform
    np.testing.assert_allclose(result.root_policy, mixed, atol=2e-3)
    uniform = draw(
        [mu, sigma],
        10,
        explore=True,
        root_noise_weight=weight,
        root_dirichlet_alpha=1e6,
        sampled_prior="uniform",
        **settings,
    )
    np.testing.assert_allclose(uniform.root_policy, 0.1, atol=1e-3)
    calm = draw([mu, sigma], 2000, explore=False, root_noise_weight=weight, **settings)
    assert np.abs((np.arctanh(calm.target.actions.astype(np.float64)) - mu) / sigma).max() < 6


def test_one_slot_keeps_the_policys_own_action() -> None:
    result = draw([0.9, 1e-3], 20, explore=True, size=1, sampled=1, continuous=True)
    np.testing.assert_allclose(result.target.actions, np.tanh(0.9), atol=5e-3)


def test_nodes_draw_their_own_candidates() -> None:
    search = make_search(2, sampled=5, continuous=True, num_simulations=30)
    run(search, TableWorld(2, continuous=True), [3, 104])
    assert search.last_run is not None
    candidates = search.last_run.arrays["candidates"].reshape(2 * 31, -1)
    assert len(np.unique(candidates, axis=0)) == 62


def test_chosen_action_is_the_slots_action() -> None:
    for continuous in (False, True):
        search = make_search(3 if continuous else 12, sampled=6, continuous=continuous)
        world = TableWorld(3 if continuous else 12, continuous=continuous)
        result = run(search, world, [3, 104, 205])
        for b in range(3):
            slot = result.visit_counts[b].argmax()
            np.testing.assert_array_equal(result.action[b], result.target.actions[b, slot])


def test_only_the_root_explores_broadly() -> None:
    params = [0.4, 0.01]
    world = ScalarWorld(lambda state, action: Step(0.0, 0.0, params, None))
    search = make_search(1, sampled=4, continuous=True, num_simulations=20)
    search.run(
        world,
        world.roots([Step(0.0, 0.0, params, None)] * 3),
        np.ones((3, 0), np.bool_),
        np.full(3, -1, np.int8),
        generators(3),
        explore=True,
    )
    assert search.last_run is not None
    distance = np.abs(search.last_run.arrays["candidates"] - np.tanh(0.4))
    assert distance[:, 1:].max() < 0.06
    assert distance[:, 0, 3].min() > 0.06 > distance[:, 0, :3].max()
