"""Random trees, against slow searches written from the papers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.reference import tree_search as slow
from tests.search.helpers import (
    enumerate_all,
    make_search,
    root_state,
    run,
    scalar_model,
)
from tests.search.table_world import TableWorld, given_noise, policy, value
from zero_tune.search.search import GivenDraws

STATES = [3, 1207, 4512, 9001]


def reference_root(search: slow.TreeSearch, world: TableWorld, s: int, legal: list[int]) -> Any:
    logits = policy(np.array([s]), world.num_policy_params)[0, legal].tolist()
    return search.make_root(legal, logits, float(value(np.array([s]))[0]), root_state(s))


PUCT_CASES = [
    pytest.param(players, unvisited, ranges, own, horizon, codes, id=label)
    for (players, unvisited, ranges, own, horizon, codes), label in [
        ((1, "parent_mean", "tree", True, 0, 0), "default"),
        ((2, "parent_mean", "tree", True, 0, 0), "two-players"),
        ((2, "parent_mean", "tree", False, 0, 0), "two-players-first-tie"),
        ((2, "min", "node", True, 0, 0), "two-players-node-range"),
        ((1, "zero", "tree", True, 0, 0), "zero"),
        ((1, "zero", "node", False, 0, 0), "zero-node-range"),
        ((1, "min", "tree", True, 0, 0), "min"),
        ((1, "parent_mean", "node", True, 0, 0), "node-range"),
        ((1, "parent_mean", "tree", True, 3, 0), "value-prefix"),
        ((1, "parent_mean", "tree", True, 0, 3), "chance"),
        ((2, "parent_mean", "tree", True, 0, 7), "two-player-chance"),
    ]
]


@pytest.mark.parametrize(("players", "unvisited", "ranges", "own", "horizon", "codes"), PUCT_CASES)
def test_puct(
    players: int, unvisited: str, ranges: str, own: bool, horizon: int, codes: int
) -> None:
    actions, legal = 5, [0, 1, 4]
    world = TableWorld(actions, num_codes=codes, horizon=horizon)
    fast = make_search(
        actions,
        codes=codes,
        num_simulations=60,
        discount_factor=0.9,
        unvisited_q=unvisited,
        q_normalization=ranges,
        count_own_visit=own,
        root_noise_weight=0.25,
    )
    noise = np.full((len(STATES), actions), np.nan)
    for b in range(len(STATES)):
        noise[b, legal] = given_noise(b, len(legal))
    result = run(
        fast,
        world,
        STATES,
        legal=legal,
        to_play=[-1] * 4 if players == 1 else [1, 2, 1, 2],
        explore=True,
        given=GivenDraws(root_noise=noise),
    )
    for b, s in enumerate(STATES):
        settings = slow.Settings(
            60,
            0.9,
            two_players=players == 2,
            unvisited_q=unvisited,
            node_range=ranges == "node",
            count_own_visit=own,
            num_codes=codes,
        )
        search = slow.Puct(settings, scalar_model(world), enumerate_all(actions))
        root = reference_root(search, world, s, legal)
        mixed = zip(root.prior, given_noise(b, len(legal)), strict=True)
        root.prior = [0.75 * p + 0.25 * float(n) for p, n in mixed]
        expected = search.run(root)
        assert result.visit_counts[b, legal].tolist() == expected.visits
        assert result.visit_counts[b].sum() == 60
        assert result.value[b] == pytest.approx(expected.value, abs=1e-5)
        np.testing.assert_allclose(result.root_policy[b, legal], root.prior, atol=1e-6)
        for slot, q in zip(legal, expected.q, strict=True):
            if q is not None:
                assert result.q_values[b, slot] == pytest.approx(q, abs=1e-5)
            else:
                assert np.isnan(result.q_values[b, slot])


@pytest.mark.parametrize(
    ("players", "horizon", "codes", "considered"),
    [(1, 0, 0, 16), (1, 0, 0, 3), (2, 0, 0, 4), (1, 4, 0, 2), (1, 0, 3, 4), (1, 0, 0, 1)],
)
def test_gumbel(players: int, horizon: int, codes: int, considered: int) -> None:
    actions, legal = 7, [0, 2, 3, 5, 6]
    world = TableWorld(actions, num_codes=codes, horizon=horizon)
    fast = make_search(
        actions,
        rule="gumbel",
        codes=codes,
        num_simulations=45,
        discount_factor=0.95,
        max_num_considered_actions=considered,
    )
    gumbel = np.random.default_rng(5).gumbel(size=(len(STATES), actions)).astype(np.float32)
    result = run(
        fast,
        world,
        STATES,
        legal=legal,
        to_play=[-1] * 4 if players == 1 else [2, 1, 2, 1],
        explore=True,
        given=GivenDraws(root_gumbel=gumbel),
    )
    for b, s in enumerate(STATES):
        settings = slow.Settings(45, 0.95, two_players=players == 2, num_codes=codes)
        search = slow.Gumbel(
            settings,
            scalar_model(world),
            enumerate_all(actions),
            gumbel[b, legal].tolist(),
            considered,
        )
        expected = search.run(reference_root(search, world, s, legal))
        assert result.visit_counts[b, legal].tolist() == expected.visits
        assert result.value[b] == pytest.approx(expected.value, abs=1e-5)
        assert result.action[b, 0] == legal[expected.action_slot]
        np.testing.assert_allclose(result.target.weights[b, legal], expected.weights, atol=1e-5)


@pytest.mark.parametrize(
    ("continuous", "rule", "uniform"),
    list(itertools.product([False, True], ["puct", "gumbel"], [False, True])),
)
def test_sampled(continuous: bool, rule: str, uniform: bool) -> None:
    """The same draws at every node, so that the reference can make them too."""
    size, slots = (2, 6) if continuous else (9, 4)
    world = TableWorld(size, continuous=continuous)
    fast = make_search(
        size,
        sampled=slots,
        continuous=continuous,
        rule=rule,
        num_simulations=40,
        sampled_prior="uniform" if uniform else "policy",
        max_num_considered_actions=4,
    )
    rng = np.random.default_rng(1)
    draws = rng.normal(size=slots * size) if continuous else rng.uniform(size=size)
    given = GivenDraws(node_draws=draws)
    result = run(fast, world, STATES, given=given)

    def propose(params: Any) -> tuple[list[Any], list[float]]:
        params = np.asarray(params)
        if continuous:
            mu, sigma = params[:size], params[size:]
            actions = np.tanh(mu + sigma * draws.reshape(slots, size)).astype(np.float32)
            return list(actions), [0.0] * slots
        keys = np.log(draws) / np.asarray(slow.softmax(list(params)))
        order = np.argsort(-keys)[:slots].tolist()
        return order, [0.0 if uniform else float(params[a]) for a in order]

    for b, s in enumerate(STATES):
        settings = slow.Settings(40, 0.997)
        search: slow.TreeSearch
        if rule == "gumbel":
            search = slow.Gumbel(settings, scalar_model(world), propose, [0.0] * slots, 4)
        else:
            search = slow.Puct(settings, scalar_model(world), propose)
        params = world.policy(np.array([s]))[0]
        root = search.make_root(*propose(params), float(value(np.array([s]))[0]), root_state(s))
        expected = search.run(root)
        assert result.visit_counts[b].tolist() == expected.visits
        assert result.value[b] == pytest.approx(expected.value, abs=1e-5)
        np.testing.assert_allclose(result.target.weights[b], expected.weights, atol=1e-5)
        np.testing.assert_allclose(
            result.target.actions[b], np.reshape(root.actions, (slots, -1)), atol=1e-6
        )
        np.testing.assert_array_equal(
            result.action[b], result.target.actions[b, expected.action_slot]
        )
