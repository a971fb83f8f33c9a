"""Gumbel MuZero."""

from __future__ import annotations

from functools import partial
from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY, suggest

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "num_simulations": tune.choice([4, 8, 16]),
        "max_num_considered_actions": tune.choice([4, 8, 16]),
    }
}

define_by_run = partial(suggest, PARAM_SPACE)

__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
