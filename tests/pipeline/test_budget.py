"""Train budgets."""

from __future__ import annotations

import math

import pytest

from zero_tune.pipeline.budget import TrainBudgets


def drain(budgets: TrainBudgets) -> int:
    updates = 0
    while len(budgets):
        budgets.count_update()
        updates += 1
    return updates


@pytest.mark.parametrize("ratio", [0.25, 0.1, 1 / 3, 2.0])
def test_fractions_of_a_replay_ratio_are_carried_over(ratio: float) -> None:
    budgets, steps, updates = TrainBudgets(None, ratio), 0, 0
    for envsteps in (7, 13, 100) * 20:
        budgets.add(envsteps)
        steps += envsteps
        updates += drain(budgets)
        assert updates == math.floor(ratio * steps + 1e-6)


def test_a_fixed_number_wins_over_the_ratio() -> None:
    budgets = TrainBudgets(3, 0.25)
    budgets.add(1000)
    budgets.add(1)
    assert budgets.updates_owed == 6 and len(budgets) == 2


def test_zero_updates_complete_at_once() -> None:
    budgets = TrainBudgets(0, 0.25)
    budgets.add(100)
    assert len(budgets) == 0 and budgets.completed == 1 and budgets.head is None


def test_first_in_first_out_and_boundaries() -> None:
    budgets = TrainBudgets(2, 0.0)
    budgets.add(1)
    budgets.add(1)
    assert budgets.at_boundary
    assert not budgets.count_update()
    assert not budgets.at_boundary and budgets.updates_owed == 3
    assert budgets.count_update()
    assert budgets.at_boundary and budgets.completed == 1 and len(budgets) == 1


def test_state_survives() -> None:
    budgets = TrainBudgets(None, 0.3)
    for steps in (7, 7, 7):
        budgets.add(steps)
    budgets.count_update()
    other = TrainBudgets(None, 0.3)
    other.load_state_dict(budgets.state_dict())
    for b in (budgets, other):
        b.add(5)
    assert other.state_dict() == budgets.state_dict()
    assert drain(other) + 1 == math.floor(0.3 * 26)
