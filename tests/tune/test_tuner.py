"""Trials under a Tuner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

from tests.tune.small import small
from zero_tune import checkpoint
from zero_tune.errors import ResourceError
from zero_tune.loading import load_policy
from zero_tune.tune.results import best_evaluated
from zero_tune.tune.trainable import SCORE, MuZeroAsyncTrainable, MuZeroSyncTrainable

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

STEPS = "num_env_steps_sampled_lifetime"


def fit(trainable: Any, space: dict[str, Any], path: Path, **settings: Any) -> Any:
    run: dict[str, Any] = settings.pop("run", {})
    keep = settings.pop("num_to_keep", 1)
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(metric=SCORE, mode="max", **settings),
        run_config=tune.RunConfig(
            name="t",
            storage_path=str(path),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=keep, checkpoint_score_attribute=SCORE
            ),
            **run,
        ),
    )
    return tuner.fit()


def rows_of(result: Any) -> list[dict[str, Any]]:
    lines = (Path(result.path) / "result.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_scores_checkpoints_and_reevaluation_agree(tmp_path: Path) -> None:
    """ASHA with late and carried scores; every kept checkpoint holds the weights of its own score."""
    scheduler = tune.schedulers.ASHAScheduler(time_attr=STEPS, max_t=1000, grace_period=100)
    space = small({"policy": {"max_env_step": 200}})
    results = fit(MuZeroSyncTrainable, space, tmp_path, scheduler=scheduler)
    assert results.num_errors == 0 and len(results) == 1
    for result in results:
        for kept, metrics in result.best_checkpoints:
            _, _, score = checkpoint.read_evaluated(kept.path)
            assert score.reward_mean == metrics[SCORE]
            assert score.policy_version == metrics["evaluation/snapshot_version"]
    best = best_evaluated(results)
    assert best is not None
    policy = load_policy(best.path)
    again = policy.evaluate()
    assert again.reward_mean == best.score
    assert again.episode_returns == policy.score.episode_returns


def test_a_trial_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    space = small({"policy": {"async_pipeline": {"num_collector_actors": 9}}})
    with pytest.raises(ResourceError, match="needs 11 CPU, the cluster has 4"):
        fit(MuZeroAsyncTrainable, space, tmp_path)


@pytest.mark.slow
def test_async_trial_stopped_with_work_in_flight(tmp_path: Path) -> None:
    space = small({"policy": {"max_env_step": None, "async_pipeline": {"shutdown_timeout_s": 5}}})
    results = fit(MuZeroAsyncTrainable, space, tmp_path, run={"stop": {"training_iteration": 4}})
    assert results.num_errors == 0
    assert results[0].metrics["training_iteration"] == 4
    _, _, score = checkpoint.read_evaluated(results[0].checkpoint.path)
    assert score.reward_mean == results[0].metrics[SCORE]
    assert ray.available_resources()["CPU"] == 4


@pytest.mark.slow
def test_an_exploited_trial_continues_from_the_donor_with_its_own_rate(tmp_path: Path) -> None:
    class Forced(MuZeroSyncTrainable):
        """The second trial is always the worse one."""

        def step(self) -> dict[str, Any]:
            result = super().step()
            result["forced"] = -float(self._config.seed)
            return result

    scheduler = tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="forced",
        mode="max",
        perturbation_interval=3,
        quantile_fraction=0.5,
        hyperparam_mutations={"policy": {"learning_rate": [1e-3]}},
        resample_probability=1.0,
        synch=True,
    )
    space = small({"seed": tune.grid_search([1, 2])}, {"policy": {"learning_rate": 1e-2}})
    tuner = tune.Tuner(
        Forced,
        param_space=space,
        tune_config=tune.TuneConfig(scheduler=scheduler),
        run_config=tune.RunConfig(
            name="t",
            storage_path=str(tmp_path),
            verbose=0,
            stop={"training_iteration": 12},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=4),
        ),
    )
    results = tuner.fit()
    assert results.num_errors == 0
    rates = {row["learners/lr"] for result in results for row in rows_of(result)}
    assert 1e-3 in rates and 1e-2 in rates
    for result in results:
        steps = [row[STEPS] for row in rows_of(result)]
        assert steps == sorted(steps)


@pytest.mark.slow
def test_reused_actors_give_the_same_rows(tmp_path: Path) -> None:
    from tests.tune.test_sync import facts

    space = small(
        {"policy": {"max_env_step": 100, "type": tune.grid_search(["muzero", "gumbel_muzero"])}}
    )
    settings = {"max_concurrent_trials": 1}
    fresh = fit(MuZeroSyncTrainable, space, tmp_path / "a", **settings)
    reused = fit(MuZeroSyncTrainable, space, tmp_path / "b", reuse_actors=True, **settings)
    assert fresh.num_errors == reused.num_errors == 0
    for one, two in zip(fresh, reused, strict=True):
        a = [facts(r) for r in rows_of(one)]
        b = [facts(r) for r in rows_of(two)]
        assert json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@pytest.mark.slow
def test_restore_continues_where_the_run_was_cut(tmp_path: Path) -> None:
    class Crashing(MuZeroSyncTrainable):
        """Fails once, in iteration 5, unless the marker file is there."""

        def step(self) -> dict[str, Any]:
            marker = tmp_path / f"crashed{self._config.seed}"
            if self.iteration == 4 and not marker.exists():
                marker.touch()
                raise RuntimeError("cut")
            return super().step()

    space = small({"seed": tune.grid_search([1, 2])}, {"policy": {"max_env_step": 200}})
    first = fit(Crashing, space, tmp_path)
    assert first.num_errors == 2
    tuner = tune.Tuner.restore(str(tmp_path / "t"), trainable=Crashing, resume_errored=True)
    results = tuner.fit()
    assert results.num_errors == 0
    for result in results:
        rows = rows_of(result)
        iterations = [r["training_iteration"] for r in rows]
        assert max(iterations) > 5 and iterations[-1] == max(iterations)
        assert rows[-1]["done"] and rows[-1][STEPS] >= 200
        after = [r for r in rows if r["training_iteration"] >= 5]
        assert all(r[STEPS] > 0 for r in after)  # nothing started again from 0
