"""MuZero, its context and recurrent variants, EfficientZero."""

from __future__ import annotations

from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "ssl_loss_weight": tune.choice([1.0, 2.0]),
    }
}


def define_by_run(trial: Any) -> dict[str, Any] | None:
    """The same space for ``OptunaSearch``: suggests flat keys, returns nothing fixed."""
    trial.suggest_float("policy/learning_rate", 1e-3, 1e-2, log=True)
    trial.suggest_categorical("policy/td_steps", [5, 10, 20])
    trial.suggest_categorical("policy/batch_size", [64, 128])
    trial.suggest_categorical("policy/ssl_loss_weight", [1.0, 2.0])
    return None


__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
