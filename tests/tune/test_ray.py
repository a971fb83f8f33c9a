"""The trainable over Ray actors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.fakes import ConstEnv
from tests.tune.small import Faulty, assert_score_repeats, gone, small

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

TWO = {"policy": {"async_pipeline": {"num_collector_actors": 2, "poll_interval_s": 0.02}}}


@pytest.fixture
def make() -> Iterator[Any]:
    from zero_tune.tune.trainable import MuZeroAsyncTrainable

    made = []

    def build(*changes: dict[str, Any]) -> MuZeroAsyncTrainable:
        made.append(MuZeroAsyncTrainable(small(*changes)))
        return made[-1]

    yield build
    for trainable in made:
        trainable.stop()


def finish(trainable: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while not rows or not rows[-1]["done"]:
        rows.append(trainable.train())
        assert len(rows) < 500
    return rows


def test_killed_and_hung_workers_are_replaced(make: Any, tmp_path: Path) -> None:
    trainable = make(TWO)
    trainable.train()
    pool = trainable._pool
    before = pool.pids()
    os.kill(before["collector", 0], signal.SIGKILL)
    while trainable.train()["fault_tolerance/num_collector_restarts"] == 0:
        pass
    os.kill(before["evaluator", 0], signal.SIGKILL)
    rows = finish(trainable)
    last = rows[-1]
    assert last["fault_tolerance/num_collector_restarts"] == 1
    assert last["fault_tolerance/num_evaluator_restarts"] == 1
    assert last["evaluation/snapshot_version"] == last["learners/train_iter"] > 0
    assert all(r["buffer/ledger_error"] == 0 for r in rows)
    assert_score_repeats(trainable, last, tmp_path)
    after = pool.pids()
    assert after["collector", 0] != before["collector", 0]
    assert after["collector", 1] == before["collector", 1]
    assert pool._incarnation["collector", 0] == 1 and pool._incarnation["collector", 1] == 0
    trainable.stop()
    trainable.cleanup()
    gone(after.values())


def test_actors_of_a_failed_setup_are_ended(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from zero_tune.tune.ray_pool import RayPool

    spawn, pids = RayPool._spawn, []

    def third_fails(pool: RayPool, name: tuple[str, int]) -> None:
        if len(pool._actors) == 2:
            pids.extend(pool.pids().values())
            raise RuntimeError("no third one")
        spawn(pool, name)

    monkeypatch.setattr(RayPool, "_spawn", third_fails)
    with pytest.raises(RuntimeError, match="no third one"):
        make(TWO)
    assert len(pids) == 2
    gone(pids)


def test_deterministic_async_equals_sync(make: Any) -> None:
    from tests.tune.test_sync import assert_same, facts
    from zero_tune.tune.trainable import MuZeroSyncTrainable

    keys = {"policy": {"max_env_step": 120, "update_per_collect": 40, "eval_freq": 120}}
    one = make(keys, {"policy": {"async_pipeline": {"deterministic": True}}})
    two = MuZeroSyncTrainable(small(keys))
    for ours, theirs in zip(finish(one), finish(two), strict=True):
        np.testing.assert_equal(facts(ours), facts(theirs))
    learners = [t.driver.learner for t in (one, two)]
    assert all(learner.train_iter >= 200 for learner in learners)
    assert_same(*(learner.state_dict() for learner in learners))


@pytest.mark.slow
def test_load_republishes_and_drops_work_in_flight(make: Any, tmp_path: Path) -> None:
    trainable = make(TWO)
    row: dict[str, Any] = {}
    while not row or row["learners/train_iter"] < 12:
        row = trainable.train()
    trainable.save(str(tmp_path))
    while trainable.train()["learners/train_iter"] < row["learners/train_iter"] + 6:
        pass
    trainable.restore(str(tmp_path))
    driver = trainable.driver
    assert driver.learner.train_iter == row["learners/train_iter"]
    assert driver.collects_inflight == 0
    rows = finish(trainable)
    assert all(r["buffer/ledger_error"] == 0 for r in rows)


@pytest.mark.slow
def test_errors_of_the_environment_reach_the_trial(make: Any) -> None:
    from zero_tune.errors import NonFiniteError, WorkerFailed

    trainable = make({"env": {"env_id": Faulty}})
    with pytest.raises(NonFiniteError, match="non-finite reward"):
        finish(trainable)
    trainable.stop()
    trainable = make(
        {"env": {"env_id": Faulty, "kwargs": {"fault": "raise"}}},
        {"policy": {"async_pipeline": {"max_actor_restarts": 1}}},
    )
    with pytest.raises(WorkerFailed, match="the simulator crashed"):
        finish(trainable)


@pytest.mark.slow
def test_an_id_that_only_the_driver_knows_says_how_to_fix_it(make: Any) -> None:
    from zero_tune.errors import ConfigError

    gym.register("DriverOnly-v0", lambda: ConstEnv())
    try:
        with pytest.raises(ConfigError, match=r"DriverOnly-v0.*'module:id', or pass a callable"):
            make({"env": {"env_id": "DriverOnly-v0"}})
    finally:
        del gym.registry["DriverOnly-v0"]
    rows = finish(
        make(TWO, {"env": {"env_id": lambda: ConstEnv()}, "policy": {"max_env_step": 100}})
    )
    assert rows[-1]["evaluation/episode_return_mean"] == 6.0


@pytest.mark.slow
def test_every_process_has_the_threads_of_its_cpu_share(make: Any) -> None:
    import ray
    import torch

    def threads(trainable: Any) -> list[int]:
        return [ray.get(a.num_threads.remote()) for a in trainable._pool._actors.values()]

    before = torch.get_num_threads()
    usual = make(TWO)
    assert threads(usual) == [1, 1, 1] and torch.get_num_threads() == 1
    usual.stop()
    assert threads(make({"policy": {"num_threads": 2}})) == [2, 2]
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_hung_collect_is_given_up(make: Any) -> None:
    trainable = make({"policy": {"async_pipeline": {"collect_timeout_s": 3}}})
    trainable.train()
    pid = trainable._pool.pids()["collector", 0]
    os.kill(pid, signal.SIGSTOP)
    try:
        while trainable.train()["fault_tolerance/num_collector_restarts"] == 0:
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
    finish(trainable)
