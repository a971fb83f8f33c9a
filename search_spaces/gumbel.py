"""Gumbel MuZero."""

from __future__ import annotations

from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "num_simulations": tune.choice([4, 8, 16]),
        "max_num_considered_actions": tune.choice([4, 8, 16]),
    }
}


def define_by_run(trial: Any) -> dict[str, Any] | None:
    """The same space for ``OptunaSearch``: suggests flat keys, returns nothing fixed."""
    trial.suggest_float("policy/learning_rate", 1e-3, 1e-2, log=True)
    trial.suggest_categorical("policy/td_steps", [5, 10, 20])
    trial.suggest_categorical("policy/batch_size", [64, 128])
    trial.suggest_categorical("policy/num_simulations", [4, 8, 16])
    trial.suggest_categorical("policy/max_num_considered_actions", [4, 8, 16])
    return None


__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
