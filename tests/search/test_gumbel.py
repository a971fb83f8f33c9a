"""The Gumbel rule: sequential halving, fresh noise, the improved policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.tree_search import Step, halving_sequence
from tests.search.helpers import generators, make_search, run
from tests.search.scalar_world import ScalarWorld
from tests.search.table_world import TableWorld
from tests.search.test_puct import constant, search_one
from zero_tune.search.rules import considered_visits


@pytest.mark.parametrize(
    ("considered", "simulations", "expected"),
    [
        (4, 8, [0, 0, 0, 0, 1, 1, 2, 2]),
        (3, 10, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4]),
        (
            16,
            50,
            [0] * 16 + [1] * 8 + [2] * 4 + [3] * 4 + [4] * 4
            + [5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11],
        ),
        (1, 5, [0, 1, 2, 3, 4]),
        (0, 3, [0, 1, 2]),
    ],
)  # fmt: skip
def test_considered_visits(considered: int, simulations: int, expected: list[int]) -> None:
    assert considered_visits(considered, simulations)[considered].tolist() == expected


def test_considered_visits_equal_a_direct_simulation() -> None:
    for considered in (2, 3, 5, 7, 12, 50):
        for simulations in (1, 2, 9, 33, 100):
            row = considered_visits(considered, simulations)[considered]
            assert row.tolist() == halving_sequence(considered, simulations)


@pytest.mark.parametrize("actions", [50, 200])
def test_few_legal_among_many_actions(actions: int) -> None:
    """Slots are not mistaken for action ids, noise fits any number of actions and is fresh per call."""
    legal = [3, 17, 41]
    search = make_search(actions, rule="gumbel", num_simulations=16)
    world = TableWorld(actions)
    mask = np.zeros((1, actions), np.bool_)
    mask[0, legal] = True

    def pair() -> list[Any]:
        rng = generators(1, seed=4)
        out = []
        for _ in range(2):
            result = search.run(
                world, world.roots([77]), mask, np.full(1, -1, np.int8), rng, explore=True
            )
            assert search.last_run is not None
            out.append((result, search.last_run.arrays["gumbel"].copy()))
        return out

    (first, noise_1), (second, noise_2) = pair()
    (again, noise_3), (again_2, noise_4) = pair()
    assert not np.array_equal(noise_1, noise_2)
    np.testing.assert_array_equal(noise_1, noise_3)
    np.testing.assert_array_equal(noise_2, noise_4)
    for result, other in ((first, again), (second, again_2)):
        np.testing.assert_array_equal(result.visit_counts, other.visit_counts)
        np.testing.assert_array_equal(result.action, other.action)
        assert np.flatnonzero(result.visit_counts[0]).tolist() == legal
        assert result.visit_counts.sum() == 16
        assert result.target.weights[0, legal].sum() == pytest.approx(1.0, abs=1e-6)
        assert result.action[0, 0] in legal


def test_two_legal_actions_share_the_visits() -> None:
    """Considering more actions than are legal would leave a step without a candidate."""
    search = make_search(6, rule="gumbel", num_simulations=8, max_num_considered_actions=4)
    result = run(search, TableWorld(6), [3], legal=[1, 4])
    assert result.visit_counts[0].tolist() == [0, 4, 0, 0, 4, 0]


def test_rows_of_a_batch_have_their_own_noise() -> None:
    search = make_search(5, rule="gumbel")
    run(search, TableWorld(5), [3, 3], explore=True)
    assert search.last_run is not None
    noise = search.last_run.arrays["gumbel"]
    assert not np.array_equal(noise[0], noise[1])


def test_noise_is_gumbel_distributed_and_scaled() -> None:
    search = make_search(50, rule="gumbel", num_simulations=1, gumbel_scale=2.0)
    run(search, TableWorld(50), [3] * 400, explore=True)
    assert search.last_run is not None
    noise = search.last_run.arrays["gumbel"].ravel() / 2.0
    assert noise.mean() == pytest.approx(0.5772, abs=0.03)
    assert noise.var() == pytest.approx(np.pi**2 / 6, rel=0.04)


def test_equal_values_teach_the_prior() -> None:
    logits = [2.0, 0.0, -1.0, 0.5]
    result = search_one(
        constant(0.0, 0.25, 4),
        Step(0, 0.25, logits, None),
        rule="gumbel",
        num_simulations=200,
        discount_factor=1.0,
    )
    prior = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(result.target.weights[0], prior, atol=1e-5)


def test_evaluation_is_deterministic_and_improves_on_the_prior() -> None:
    """Three arms of known worth, no depth; Dirichlet settings have no say under this rule."""
    worth = np.array([0.1, 0.9, 0.5])
    logits = [1.5, -0.5, 0.0]

    def step(state: Any, action: int) -> Step:
        if state == "root":
            return Step(float(worth[action]), 0.0, [0.0] * 3, "over")
        return Step(0.0, 0.0, [0.0] * 3, "over")

    results = [
        search_one(
            ScalarWorld(step),
            Step(0, 0.4, logits, "root"),
            seed=seed,
            rule="gumbel",
            num_simulations=24,
            root_noise_weight=weight,
        )
        for seed, weight in ((1, 0.0), (2, 0.0), (1, 0.9))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].target.weights, other.target.weights)
        np.testing.assert_array_equal(results[0].action, other.action)
    prior = np.exp(logits) / np.exp(logits).sum()
    assert results[0].target.weights[0] @ worth > prior @ worth
    assert results[0].action[0, 0] == 1


def test_without_noise_the_action_maximises_logit_plus_value() -> None:
    search = make_search(6, rule="gumbel", num_simulations=50, gumbel_scale=0.0)
    result = run(search, TableWorld(6), [3, 104, 205], explore=True)
    visits, weights = result.visit_counts, result.target.weights
    for b in range(3):
        most = np.flatnonzero(visits[b] == visits[b].max())
        assert result.action[b, 0] == most[np.argmax(weights[b, most])]


def test_root_visits_follow_the_halving_table() -> None:
    search = make_search(9, rule="gumbel", num_simulations=32, max_num_considered_actions=4)
    result = run(search, TableWorld(9), [3, 104, 205], explore=True, legal=[0, 2, 4, 5, 6, 8])
    for b in range(3):
        expected = np.bincount(considered_visits(4, 32)[4])
        assert (result.visit_counts[b] > 0).sum() == expected[0]
        assert result.visit_counts[b].sum() == 32
        counts = sorted(result.visit_counts[b].tolist(), reverse=True)
        assert counts[0] == counts[1] == considered_visits(4, 32)[4].max() + 1
