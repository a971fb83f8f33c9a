"""When weights are published."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.scripted import ScriptedLearner, ScriptedPool
from zero_tune.pipeline.publisher import Publisher


def published(interval: int, lag: int | None, versions: range) -> list[int]:
    learner: Any = ScriptedLearner()
    pool = ScriptedPool()
    publisher = Publisher(learner, pool, interval, lag)
    for version in versions:
        learner.train_iter = version
        publisher.for_launch(0)
    return pool.published


@pytest.mark.parametrize(
    ("interval", "lag", "expected"),
    [
        (5, 2, [0, 3, 6, 9]),  # the lag would be 3
        (2, 5, [0, 2, 4, 6, 8]),
        (4, None, [0, 4, 8]),
        (4, -1, [0, 4, 8]),
        (4, 0, list(range(10))),
        (1, 3, list(range(10))),
    ],
)
def test_interval_or_lag_whichever_comes_first(
    interval: int, lag: int | None, expected: list[int]
) -> None:
    assert published(interval, lag, range(10)) == expected


def test_one_snapshot_per_version() -> None:
    learner: Any = ScriptedLearner()
    publisher = Publisher(learner, ScriptedPool(), 1, 0)
    first = publisher.for_launch(0)
    assert publisher.for_launch(10) is first
    assert publisher.snapshot(10) is first and learner.snapshots == 1


def test_reset_publishes_the_same_version_again() -> None:
    learner: Any = ScriptedLearner()
    pool = ScriptedPool()
    publisher = Publisher(learner, pool, 1, 0)
    publisher.for_launch(0)
    publisher.reset()
    publisher.for_launch(0)
    assert pool.published == [0, 0]
