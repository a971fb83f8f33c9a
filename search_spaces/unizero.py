"""UniZero and Sampled UniZero."""

from __future__ import annotations

from functools import partial
from typing import Any

from ray import tune

from search_spaces.common import OPTIMIZER, PBT_MUTATIONS, REPLAY, suggest

PARAM_SPACE: dict[str, Any] = {
    "policy": {
        **OPTIMIZER,
        **REPLAY,
        "latent_loss_weight": tune.choice([5.0, 10.0]),
        "target_update_theta": tune.choice([0.02, 0.05]),
    }
}

define_by_run = partial(suggest, PARAM_SPACE)

__all__ = ["PARAM_SPACE", "PBT_MUTATIONS", "define_by_run"]
