"""Reading what a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zero_tune.tune.trainable import SCORE


@dataclass(frozen=True)
class BestEvaluated:
    """The best evaluated snapshot of a search."""

    path: str
    score: float
    trial: str
    config: dict[str, Any]


def best_evaluated(results: Any) -> BestEvaluated | None:
    """The checkpoint with the best evaluation over all trials of a ``ResultGrid``, None if there is none."""
    best: BestEvaluated | None = None
    for result in results:
        for checkpoint, metrics in result.best_checkpoints or []:
            score = metrics.get(SCORE, float("nan"))
            if score == score and (best is None or score > best.score):
                best = BestEvaluated(
                    checkpoint.path,
                    float(score),
                    str(metrics.get("trial_id", "")),
                    result.config or {},
                )
    return best
