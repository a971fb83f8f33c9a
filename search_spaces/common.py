"""Search spaces of settings that every policy type has, and a space as a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import FloatDistribution, IntDistribution
from ray import tune
from ray.tune.search.optuna import OptunaSearch

#: Optimisation, for the presets with Adam; an Atari preset learns with SGD at 0.2 and wants its own range.
OPTIMIZER = {"learning_rate": tune.loguniform(1e-3, 1e-2)}

#: How much is learned from each env step.
REPLAY = {"td_steps": tune.choice([5, 10, 20]), "batch_size": tune.choice([64, 128])}

#: Settings that population-based training may change while a trial runs.
PBT_MUTATIONS = {"policy": {"learning_rate": tune.loguniform(3e-4, 1e-2)}}


def suggest(space: Mapping[str, Any], trial: Any) -> None:
    """Ask ``trial`` for a value of every key of ``space``, for ``OptunaSearch(define_by_run)``.

    Keys are flat (``policy/learning_rate``), as Ray's searchers write them. A user's own
    function may call this and then suggest more, or make one suggestion depend on another.

    Raises:
        ValueError: a value of ``space`` is a grid, or a domain that Optuna does not know.
    """
    for key, found in OptunaSearch.convert_search_space(dict(space)).items():
        if isinstance(found, FloatDistribution):
            trial.suggest_float(key, found.low, found.high, step=found.step, log=found.log)
        elif isinstance(found, IntDistribution):
            trial.suggest_int(key, found.low, found.high, step=found.step, log=found.log)
        else:
            trial.suggest_categorical(key, found.choices)
