from __future__ import annotations

import numpy as np
import pytest

from zero_tune.replay.sum_tree import SumTree, draw_fractions, importance_weights


def assign(tree: SumTree, rows: list[int], weights: list[float]) -> None:
    values = np.array(weights, np.float64)
    tree.assign(np.array(rows, np.int64), values, 10 * values)


def test_find_splits_the_line_by_weight() -> None:
    tree = SumTree(5)
    assign(tree, [0, 1, 3, 4], [1.0, 2.0, 4.0, 1.0])
    assert tree.total == 8.0 and tree.max_priority == 40.0
    fractions = np.array([0.0, 0.124, 0.125, 0.374, 0.375, 0.874, 0.875, 0.999, 1.0])
    assert tree.find(fractions).tolist() == [0, 0, 1, 1, 3, 3, 4, 4, 4]


def test_of_a_repeated_row_the_last_weight_counts() -> None:
    tree = SumTree(4)
    assign(tree, [2, 2, 2], [5.0, 1.0, 3.0])
    assert tree.total == 3.0 and tree.max_priority == 30.0


def test_sums_do_not_depend_on_the_order_of_updates() -> None:
    rng = np.random.default_rng(0)
    tree, other = SumTree(1000), SumTree(1000)
    weights = rng.random(1000) ** 9
    for _ in range(20):
        rows = rng.integers(1000, size=300)
        tree.assign(rows, rng.random(300), rng.random(300))
    tree.assign(np.arange(1000), weights, weights)
    other.rebuild(weights, weights)
    assert tree.total == other.total and tree.max_priority == other.max_priority
    fractions = rng.random(500)
    np.testing.assert_array_equal(tree.find(fractions), other.find(fractions))
    tree.remove(np.arange(1000))
    assert tree.total == 0.0 and tree.max_priority == 0.0


@pytest.mark.parametrize("capacity", [1, 2, 3, 37, 64, 1000])
def test_rows_of_weight_zero_are_never_found(capacity: int) -> None:
    """Even where rounding puts a target on, or past, the end of an interval."""
    rng = np.random.default_rng(capacity)
    tree = SumTree(capacity)
    weights = np.where(rng.random(capacity) < 0.3, 10.0 ** rng.integers(-12, 12, capacity), 0.0)
    weights[rng.integers(capacity)] = 1e-9
    tree.rebuild(weights, weights)
    edges = np.cumsum(weights) / weights.sum()
    fractions = np.concatenate([rng.random(2000), edges, [0.0, 1.0], np.nextafter(edges, 0)])
    assert (weights[tree.find(fractions.clip(0, 1))] > 0).all()


@pytest.mark.parametrize("stratified", [True, False])
def test_histogram_follows_the_weights(stratified: bool) -> None:
    rng = np.random.default_rng(1)
    weights = np.array([0.0, 1.0, 2.0, 0.0, 5.0, 2.0])
    tree = SumTree(6)
    tree.rebuild(weights, weights)
    draws = [tree.find(draw_fractions(40, rng, stratified)) for _ in range(500)]
    counts = np.bincount(np.concatenate(draws), minlength=6)
    expected = 20_000 * weights / 10
    # Four standard deviations of a binomial count; a stratum can only lower the variance.
    spread = 4 * np.sqrt(expected * (1 - weights / 10))
    assert (np.abs(counts - expected) <= spread).all()
    if stratified:
        per_batch = np.array([np.bincount(d, minlength=6) for d in draws])
        assert (np.abs(per_batch - 4 * weights) <= 2).all()


def test_importance_weights_by_hand() -> None:
    weights = importance_weights(np.array([0.1, 0.4]), count=5, beta=0.5)
    np.testing.assert_allclose(weights, [1.0, 0.5], rtol=1e-6)  # (0.5 / 2) ** 0.5
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(importance_weights(np.full(3, 0.2), 5, 0.4), np.ones(3))
