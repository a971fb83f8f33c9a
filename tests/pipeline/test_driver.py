"""The driver loop with scripted workers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time

import numpy as np
import pytest

from tests.pipeline.scripted import (
    ScriptedCollector,
    ScriptedEvaluator,
    ScriptedPool,
    make_driver,
    run,
)
from zero_tune.config import IterationConfig
from zero_tune.errors import NonFiniteError, WorkerFailed
from zero_tune.pipeline.driver import Driver
from zero_tune.pipeline.events import COLLECTOR, EVALUATOR, WorkerError
from zero_tune.pipeline.local_pool import LocalPool

SYNC = {"async_pipeline": {"enabled": False}}


def local_pool(steps: int = 20, stop_at: float = float("inf"), collectors: int = 1) -> LocalPool:
    return LocalPool(
        lambda worker, incarnation: ScriptedCollector(worker, incarnation, steps),
        lambda worker: ScriptedEvaluator(stop_at),
        collectors,
    )


def pipe(**keys: object) -> dict[str, object]:
    return {"async_pipeline": keys}


@pytest.mark.parametrize("enabled", [False, True])
def test_every_budget_is_trained_and_the_last_version_scored(enabled: bool) -> None:
    pool = ScriptedPool() if enabled else local_pool()
    rows = run(make_driver(pool, pipe(enabled=enabled)))
    last = rows[-1]
    assert last["num_env_steps_sampled_lifetime"] == 100
    assert last["learners/train_iter"] == 20  # 5 collects, 4 updates each
    assert last["evaluation/snapshot_version"] == 20 and last["evaluation/is_new"] == 1
    assert [r["done"] for r in rows[:-1]] == [False] * (len(rows) - 1)
    assert all(r["buffer/ledger_error"] == 0 for r in rows)


def test_async_order_of_events_with_workers_in_place() -> None:
    driver = make_driver(local_pool(), pipe(ray_local_mode=True, eval_at_start=True))
    last = run(driver)[-1]
    assert last["learners/train_iter"] == 20 and last["evaluation/snapshot_version"] == 20


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("steps", [7, 13, 100])
def test_updates_follow_the_replay_ratio(enabled: bool, steps: int) -> None:
    pool = ScriptedPool(steps=steps) if enabled else local_pool(steps)
    driver = make_driver(
        pool,
        pipe(enabled=enabled),
        {"update_per_collect": None, "replay_ratio": 0.25, "max_env_step": 500},
    )
    last = run(driver)[-1]
    expected = math.floor(0.25 * last["num_env_steps_sampled_lifetime"])
    assert abs(last["learners/train_iter"] - expected) <= 1


def test_training_opens_at_the_first_collect_past_the_mark_and_collection_is_not_throttled() -> (
    None
):
    pool = ScriptedPool()
    driver = make_driver(
        pool,
        {"train_start_after_envsteps": 70, "max_env_step": 200},
        pipe(max_train_budget_queue_size=1, max_collect_inflight=1),
    )
    while driver.learner.train_iter == 0:
        driver.turn()
    assert driver.ledger.envstep == 80  # 4 collects of 20, three budgets waiting all along
    run(driver)
    assert driver.learner.train_iter == 40


def test_the_gate_opens_when_collection_has_ended() -> None:
    rows = run(
        make_driver(ScriptedPool(), {"train_start_after_envsteps": 4000, "max_env_step": 100})
    )
    assert rows[-1]["learners/train_iter"] == 20


def test_budgets_and_collects_in_flight_share_one_limit() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 1, num_collectors=3)
    driver = make_driver(
        pool,
        {"update_per_collect": 50, "max_env_step": 2000},
        pipe(num_collector_actors=3, max_train_budget_queue_size=4),
    )
    most = 0
    while not driver.done:
        driver.turn()
        driver.evaluations.report()
        if driver.learner.train_iter > 1:
            most = max(most, len(driver.budgets) + driver.collects_inflight)
    assert most == 4


def test_a_finished_collector_gets_work_before_the_chunk_ends() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 2)
    driver = make_driver(
        pool,
        {"update_per_collect": 100, "max_env_step": 1000},
        pipe(max_train_chunk_steps=100, max_train_budget_queue_size=10),
    )
    while driver.learner.train_iter == 0:
        driver.turn()
    # within one chunk of 100 updates, until the queue was full; and once more at the budget's end
    assert len(pool.log) == 11 and driver.learner.train_iter == 100


def test_slow_updates_do_not_keep_a_report_waiting_for_the_chunks_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count()  # one second at each look
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    driver = make_driver(
        local_pool(),
        {"update_per_collect": 1000, "max_env_step": 20},
        pipe(enabled=False, max_train_chunk_steps=1000),
    )
    driver.config = dataclasses.replace(
        driver.config, iteration=IterationConfig(min_time_s=0, min_train_iters=1, max_time_s=100)
    )
    driver.iterate()
    assert 0 < driver.learner.train_iter < 100


def test_caches_are_cleared_after_every_completed_budget() -> None:
    driver = make_driver(local_pool(), {"update_per_collect": 7})
    cleared: list[int] = []
    driver.learner.target_model.recompute_pos_emb_diff_and_clear_cache = lambda: cleared.append(  # type: ignore[method-assign]
        driver.learner.train_iter
    )
    run(driver)
    assert len(cleared) == driver.budgets.completed > 3
    assert cleared == [7 * (i + 1) for i in range(len(cleared))]


def test_weights_in_use_at_launch_respect_interval_and_lag() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 1)
    run(make_driver(pool, {"max_env_step": 400}, pipe(weight_sync_interval=9, max_policy_lag=6)))
    steps = np.diff(pool.published)
    assert pool.published[0] == 0 and (steps <= 9).all() and (steps >= 7).all()


def test_the_first_report_has_a_real_score() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 40 if kind == EVALUATOR else 2)
    first = make_driver(pool, {"max_env_step": 1000}, pipe(eval_at_start=True)).iterate()
    assert first["evaluation/is_new"] == 1 and first["evaluation/snapshot_version"] == 0
    assert first["evaluation/episode_return_mean"] == 0.0
    assert first["num_env_steps_sampled_lifetime"] > 0  # collection did not wait for it


def test_scores_are_carried_forward_and_reported_once() -> None:
    rows = run(
        make_driver(ScriptedPool(), {"eval_freq": 8, "max_env_step": 400}, pipe(eval_at_start=True))
    )
    new = [r for r in rows if r["evaluation/is_new"]]
    versions = [r["evaluation/snapshot_version"] for r in new]
    assert versions == sorted(set(versions)) and versions[0] == 0 and versions[-1] == 80
    assert len(versions) >= 8
    for r in rows:
        assert r["evaluation/episode_return_mean"] == r["evaluation/snapshot_version"]


def test_evaluations_that_come_together_are_reported_one_by_one() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 60 if kind == EVALUATOR else 1, num_evaluators=2)
    driver = make_driver(
        pool,
        {"eval_freq": 4, "max_env_step": 100},
        pipe(eval_at_start=True, max_eval_inflight=2, num_evaluator_actors=2),
    )
    rows = run(driver)
    versions = [r["evaluation/snapshot_version"] for r in rows if r["evaluation/is_new"]]
    assert versions == [0, 4, 20] and rows[-1]["done"]


def test_a_good_enough_score_ends_the_trial() -> None:
    driver = make_driver(local_pool(stop_at=8.0), SYNC, {"eval_freq": 4, "max_env_step": 1000})
    rows = run(driver)
    assert rows[-1]["evaluation/snapshot_version"] == 8 and driver.learner.train_iter == 8


def test_max_train_iter_ends_in_mid_budget() -> None:
    rows = run(make_driver(ScriptedPool(), {"max_train_iter": 6, "max_env_step": None}))
    assert rows[-1]["learners/train_iter"] == 6 and rows[-1]["evaluation/snapshot_version"] == 6


def test_reports_have_the_same_scalar_keys_from_the_first_on() -> None:
    rows = run(make_driver(ScriptedPool(), {"eval_freq": 8}))
    assert len(rows) > 2
    for row in rows:
        assert list(row) == list(rows[0]) and len(row) < 100
        assert all(type(v) in (int, float, bool) for v in row.values()), row


def test_lag_is_measured_for_every_trained_sample() -> None:
    driver = make_driver(ScriptedPool(delay=lambda kind, n: 6), {"max_env_step": 400})
    rows = run(driver)
    row = next(r for r in reversed(rows) if r["async/policy_lag_mean"] > 0)
    assert 0 < row["async/policy_lag_mean"] <= row["async/policy_lag_p95"]
    assert row["async/policy_lag_p95"] <= row["async/policy_lag_max"] <= 80


@pytest.mark.parametrize(
    ("freq", "expected"),
    [
        (0.0, []),
        (0.5, [4, 12]),  # before the 2nd and 4th of 5 budgets
        (1.0, [0, 4, 8, 12, 16]),
        (2.0, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
    ],
)
def test_buffer_reanalysis_passes(freq: float, expected: list[int]) -> None:
    driver = make_driver(local_pool(), SYNC, {"buffer_reanalyze_freq": freq})
    rows = run(driver)
    assert driver.side.reanalyzer.passes == expected  # type: ignore[attr-defined]
    assert rows[-1]["buffer/positions_reanalyzed_total"] == 10 * len(expected)


def sampled(driver: Driver) -> list[int]:
    run(driver)
    return driver.learner.sampled  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("delay", [1, 5])
def test_deterministic_async_equals_sync(delay: int) -> None:
    keys = {"eval_freq": 6, "max_env_step": 400, "update_per_collect": 5}
    sync = make_driver(local_pool(collectors=2), keys, pipe(enabled=False, num_collector_actors=2))
    pool = ScriptedPool(delay=lambda kind, n: delay + n % 3, num_collectors=2)
    other = make_driver(pool, keys, pipe(deterministic=True, num_collector_actors=2))
    ours, theirs = run(sync), run(other)
    skip = ("timers/", "per_s", "collector_busy")
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        same = {k for k in a if not any(s in k for s in skip)}
        np.testing.assert_equal({k: a[k] for k in same}, {k: b[k] for k in same})
    assert sync.learner.sampled == other.learner.sampled  # type: ignore[attr-defined]


def test_a_lost_collector_costs_its_task_only() -> None:
    pool = ScriptedPool(lose=lambda kind, n: kind == COLLECTOR and n == 3)
    driver = make_driver(pool, {"max_env_step": 200})
    rows = run(driver)
    last = rows[-1]
    assert pool.respawned == [(COLLECTOR, 0, 1)]
    assert last["fault_tolerance/num_collector_restarts"] == 1
    assert last["fault_tolerance/env_steps_lost"] == 1  # the open segment's only step
    assert last["num_env_steps_sampled_lifetime"] == 200 and last["buffer/ledger_error"] == 0
    assert driver.collects_inflight == 0
    assert driver.buffer.rows_appended_total == 200 - 1 - 1  # lost, and still open
    assert driver.buffer.open_streams == (1,)  # the lost one's stream 0 was closed


def test_a_lost_evaluation_is_repeated_with_the_same_snapshot() -> None:
    lost: list[int] = []

    def lose(kind: str, n: int) -> bool:
        if kind == EVALUATOR and len(lost) < 2:
            lost.append(n)
            return True
        return False

    pool = ScriptedPool(lose=lose)
    rows = run(make_driver(pool, {"max_env_step": 400}, pipe(eval_at_start=True)))
    evaluations = [version for kind, _, version in pool.log if kind == EVALUATOR]
    assert evaluations == [0, 0, 0, 80]
    assert [i for _, _, i in pool.respawned] == [1, 2]
    assert rows[-1]["fault_tolerance/num_evaluator_restarts"] == 2


def test_too_many_losses_fail_the_trial_with_the_reason() -> None:
    pool = ScriptedPool(lose=lambda kind, n: kind == COLLECTOR)
    driver = make_driver(pool, pipe(max_actor_restarts=2))
    with pytest.raises(WorkerFailed, match=r"collector 0 was lost \(scripted loss\).*= 2"):
        run(driver)
    assert len(pool.respawned) == 2


def test_the_ledger_is_exact_after_chaos() -> None:
    rng = np.random.default_rng(3)
    chance = rng.random(4000)
    pool = ScriptedPool(
        delay=lambda kind, n: 1 + int(chance[n] * 7),
        lose=lambda kind, n: bool(chance[n + 1000] < 0.2),
        num_collectors=3,
        steps=[7, 13, 20, 1],
    )
    driver = make_driver(
        pool,
        {"max_env_step": 3000, "eval_freq": 20},
        pipe(num_collector_actors=3, max_actor_restarts=10_000, eval_at_start=True),
    )
    rows = run(driver)
    last = rows[-1]
    assert all(r["buffer/ledger_error"] == 0 for r in rows)
    open_steps = sum(c.time - c.sent for c in pool.collectors.values())
    assert (
        driver.buffer.rows_appended_total + open_steps + driver.ledger.lost_steps
        == driver.ledger.envstep
    )
    assert last["fault_tolerance/num_collector_restarts"] > 10
    incarnations = [i for _, _, i in pool.respawned]
    assert len(set(incarnations)) == len(incarnations)


def test_an_error_of_the_users_own_reaches_the_trial_unchanged() -> None:
    pool = ScriptedPool()
    error = NonFiniteError("reward", "step 50")
    pool.poll = lambda timeout_s: [WorkerError(0, COLLECTOR, error)]  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match="non-finite reward: step 50"):
        make_driver(pool).iterate()


def test_resume_continues_counters_budgets_and_draws() -> None:
    keys = {"max_env_step": 400, "eval_freq": 10}
    driver = make_driver(local_pool(), SYNC, keys, pipe(eval_at_start=True))
    while driver.learner.train_iter < 42:
        driver.turn()
        if driver.evaluations.arrived:
            driver.evaluations.report()
    state, evaluated = driver.state_dict(), driver.evaluated
    other = make_driver(local_pool(), SYNC, keys, pipe(eval_at_start=True))
    other.load_state_dict(state, evaluated)
    assert other.state_dict() == {**state, "incarnation": 1}
    assert other.evaluated is evaluated and other.buffer.num_rows == 0
    rows = run(other)
    assert rows[-1]["learners/train_iter"] == 80
    assert rows[-1]["num_env_steps_sampled_lifetime"] == 400
    assert all(r["buffer/ledger_error"] == 0 for r in rows)
    versions = [r["evaluation/snapshot_version"] for r in rows if r["evaluation/is_new"]]
    assert versions[0] == 50  # 40 was scored before


def test_loading_drops_work_in_flight_and_publishes_anew() -> None:
    pool = ScriptedPool(delay=lambda kind, n: 5)
    driver = make_driver(pool, {"max_env_step": 400}, pipe(eval_at_start=True))
    state = driver.state_dict()
    driver.iterate()
    assert pool.jobs
    driver.load_state_dict(state, None)
    assert not pool.jobs and driver.collects_inflight == 0 and driver.evaluations.pending == 0
    assert driver.learner.train_iter == driver.ledger.envstep == 0
    before = len(pool.published)
    first = driver.iterate()
    assert pool.published[before] == 0 and first["evaluation/snapshot_version"] == 0
    assert all(c.stream & 4095 == 1 for c in pool.collectors.values())


def test_without_the_buffer_training_waits_for_the_refill() -> None:
    keys = {"train_start_after_envsteps": 60, "max_env_step": 1000}
    driver = make_driver(local_pool(), SYNC, keys)
    while driver.learner.train_iter < 10:
        driver.turn()
    steps, updates = driver.ledger.envstep, driver.learner.train_iter
    driver.load_state_dict(driver.state_dict(), None)
    while driver.learner.train_iter == updates:
        driver.turn()
    assert driver.ledger.envstep == steps + 60
