"""One hyperparameter search: space, scheduler, searcher, and what came out of it."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.sample import Categorical, Domain, Float, Integer

from zero_tune.config import AsyncPipelineConfig, parse_group
from zero_tune.errors import ConfigError, nearest
from zero_tune.parsing import get_path, merge
from zero_tune.policies import policy_spec
from zero_tune.presets import resolve
from zero_tune.tune.reporter import LiveTable
from zero_tune.tune.resources import check_fits, init_ray
from zero_tune.tune.results import BestEvaluated, best_evaluated
from zero_tune.tune.trainable import SCORE, MuZeroAsyncTrainable

logger = logging.getLogger(__name__)

STEPS = "num_env_steps_sampled_lifetime"
_DEFAULT_STEPS = 10_000


@dataclass(frozen=True)
class SearchRequest:
    """What to search."""

    config: dict[str, Any]
    search_space: str | None = None
    num_samples: int = 4
    scheduler: str = "asha"
    search: str = "optuna"
    num_cpus: int | None = None
    time_budget_s: float | None = None
    name: str | None = None
    storage_path: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class SearchOutcome:
    """What the search found."""

    best: BestEvaluated | None
    varied: dict[str, Any]  # the best trial's values of the searched keys
    plot: Path | None
    failures: dict[str, str]  # folder of a failed trial -> what ended it
    results: Any  # the ResultGrid


def run_search(request: SearchRequest) -> SearchOutcome:
    """Run a whole search.

    Raises:
        ConfigError: the base config, the search space or one of its values is wrong; nothing was started.
        ResourceError: the cluster can never hold one trial.
    """
    base = merge({"policy": {"max_env_step": _DEFAULT_STEPS}}, request.config)
    resolve(base)  # every mistake in the base config is found before Ray starts
    space = load_space(request.search_space, get_path(base, "policy.type", "muzero"))
    check_space(base, space)
    if not ray.is_initialized():
        init_ray(request.num_cpus, log_to_driver=False)
    pipe = parse_group(AsyncPipelineConfig, base, "policy.async_pipeline")
    check_fits(pipe)
    horizon = int(get_path(base, "policy.max_env_step"))
    # the older output of Ray obeys verbose=0; the newer one prints every metric of a trial that fails
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    tuner = tune.Tuner(
        MuZeroAsyncTrainable,
        param_space=merge(base, space),
        tune_config=tune.TuneConfig(
            metric=SCORE,
            mode="max",
            num_samples=request.num_samples,
            scheduler=_scheduler(request, horizon),
            search_alg=OptunaSearch(seed=request.seed) if request.search == "optuna" else None,
            max_concurrent_trials=None if request.search == "random" else _concurrent(pipe),
            time_budget_s=request.time_budget_s,
            trial_name_creator=lambda trial: f"trial_{trial.trial_id}",
            trial_dirname_creator=lambda trial: f"trial_{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name=request.name,
            storage_path=request.storage_path,
            checkpoint_config=tune.CheckpointConfig(
                num_to_keep=3, checkpoint_score_attribute=SCORE, checkpoint_score_order="max"
            ),
            failure_config=tune.FailureConfig(max_failures=0),
            callbacks=[LiveTable(leaves(space))],
            verbose=0,
        ),
    )
    results = tuner.fit()
    best = best_evaluated(results)
    varied = {} if best is None else {k: get_path(best.config, k) for k in leaves(space)}
    plot = _plot(results)
    failures = {trial.path: _reason(trial.error) for trial in results if trial.error is not None}
    return SearchOutcome(best, varied, plot, failures, results)


def _scheduler(request: SearchRequest, horizon: int) -> Any:
    if request.scheduler == "none":
        return None
    return ASHAScheduler(
        time_attr=STEPS, max_t=2 * horizon, grace_period=max(1, horizon // 2), reduction_factor=2
    )


def _concurrent(pipe: AsyncPipelineConfig) -> int:
    """Trials that fit at once; Optuna learns more from finished ones."""
    from zero_tune.tune.resources import bundles

    need = sum(bundle.get("CPU", 0.0) for bundle in bundles(pipe))
    cpus = ray.cluster_resources().get("CPU", 1.0)
    return max(1, int(cpus / need)) if need else 1


def load_space(name: str | None, policy_type: str) -> Mapping[str, Any]:
    """The search space ``module:NAME``, or the policy family's own.

    Raises:
        ConfigError: it does not exist.
    """
    target = name or f"search_spaces.{policy_spec(policy_type).space}:PARAM_SPACE"
    module, _, attribute = target.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            "--search-space",
            f"module {module!r} cannot be imported ({error})",
            name,
            "Use module:NAME.",
        ) from error
    if not attribute or not hasattr(found, attribute):
        remedy = nearest(attribute, dir(found)) or "Use module:NAME."
        raise ConfigError("--search-space", f"{module} has no {attribute!r}", name, remedy)
    space: Mapping[str, Any] = getattr(found, attribute)
    return space


def check_space(base: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Every choice and both ends of every range, each alone on top of ``base``.

    Raises:
        ConfigError: a trial with such a value would fail when it starts.
    """
    for key in leaves(space):
        for value in _ends(get_path(space, key)):
            one: Any = value
            for name in reversed(key.split(".")):
                one = {name: one}
            resolve(merge(base, one))


def _ends(value: Any) -> Iterable[Any]:
    if isinstance(value, Categorical):
        return value.categories
    if isinstance(value, Mapping) and set(value) == {"grid_search"}:
        return list(value["grid_search"])
    if isinstance(value, Float):
        return value.lower, value.upper
    if isinstance(value, Integer):
        return value.lower, value.upper - 1
    return () if isinstance(value, Domain) else (value,)


def leaves(space: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys of a nested space."""
    out: list[str] = []
    for name, value in space.items():
        dotted = f"{prefix}{name}"
        nested = isinstance(value, Mapping) and set(value) != {"grid_search"}
        out += leaves(value, f"{dotted}.") if nested else [dotted]
    return out


def _reason(error: BaseException) -> str:
    """What ended a trial, in one line: Ray wraps the remote traceback around it."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else repr(error)


def _plot(results: Any) -> Path | None:
    """Learning curves of all trials beside the results, if matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        logger.warning("no learning curves: install the extra 'plot' (pip install zero-tune[plot])")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for result in results:
        frame = result.metrics_dataframe
        if frame is None or SCORE not in frame:
            continue
        fresh = frame[frame["evaluation/is_new"] == 1]
        trial = str(frame["trial_id"].iloc[-1])
        axes.plot(fresh["evaluation/envstep"], fresh[SCORE], marker="o", markersize=3, label=trial)
    axes.set_xlabel("env steps of the evaluated snapshot")
    axes.set_ylabel("mean return of the evaluation")
    axes.set_title("Evaluated snapshots by trial")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, title="trial")
    path = Path(results.experiment_path) / "learning_curves.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
