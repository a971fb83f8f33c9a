"""MuZero, its context and recurrent variants, EfficientZero."""

from __future__ import annotations

from functools import partial
from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY, suggest

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "value_loss_weight": tune.choice([0.25, 0.5, 1.0]),
    }
}

define_by_run = partial(suggest, PARAM_SPACE)

__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
