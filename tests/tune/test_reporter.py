"""The live table of a search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zero_tune.tune.reporter import LiveTable
from zero_tune.tune.trainable import SCORE


def trial(name: str, rate: float) -> Any:
    return SimpleNamespace(trial_id=name, config={"policy": {"learning_rate": rate}})


def report(score: float, steps: int) -> dict[str, Any]:
    return {
        "num_env_steps_sampled_lifetime": steps,
        "learners/train_iter": 7,
        "env_runners/env_steps_per_s": 99.6,
        "env_runners/episode_return_mean": 20.0,
        SCORE: score,
    }


def rows(lines: list[str]) -> list[list[str]]:
    """The last table printed, cell by cell, without its clock and header."""
    return [line.split() for line in lines[-2:]]


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def table(lines: list[str]) -> LiveTable:
    return LiveTable(["policy.learning_rate"], lines.append)


def test_a_row_keeps_the_best_score_beside_the_last(table: LiveTable, lines: list[str]) -> None:
    one, two = trial("trial_one", 0.01), trial("trial_two", 0.125)
    for score, steps in ((30.0, 10), (12.5, 20), (float("nan"), 30)):
        table.on_trial_result(0, [], one, report(score, steps))
    table.on_trial_result(0, [], two, report(8.0, 5))
    assert not lines  # every 15 seconds, or when a trial ends
    table.on_trial_complete(0, [], one)
    assert rows(lines) == [
        ["rial_one", "ended", "30", "7", "100", "20.0", "nan", "30.0", "0.01"],
        ["rial_two", "running", "5", "7", "100", "20.0", "8.0", "8.0", "0.125"],
    ]


def test_a_trial_without_a_result_is_in_the_table(table: LiveTable, lines: list[str]) -> None:
    one, two = trial("aaaaaaaa", 0.01), trial("bbbbbbbb", 0.02)
    table.on_trial_start(0, [], one)
    table.on_trial_start(0, [], two)
    table.on_trial_error(0, [], two)
    assert rows(lines) == [
        ["aaaaaaaa", "starting", "-", "-", "-", "-", "-", "-", "0.01"],
        ["bbbbbbbb", "FAILED", "-", "-", "-", "-", "-", "-", "0.02"],
    ]
