"""Sampled MuZero and Sampled EfficientZero."""

from __future__ import annotations

from functools import partial
from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY, suggest

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "num_of_sampled_actions": tune.choice([10, 20]),
        "policy_entropy_weight": tune.loguniform(1e-3, 5e-2),
    }
}

define_by_run = partial(suggest, PARAM_SPACE)

__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
