"""What the driver counts, and the flat dict one iteration reports."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zero_tune.pipeline.evaluation import Report
from zero_tune.types import Array, CollectResult, LossOutput

NAN = float("nan")
_LOSSES = (
    "policy",
    "value",
    "reward",
    "consistency",
    "entropy",
    "afterstate_policy",
    "afterstate_value",
    "commitment",
    "next_latent",
)


@dataclass
class Timers:
    """Seconds spent, by activity."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("collect", "batch", "update", "reanalyze", "publish", "wait"), 0.0
        )
    )

    def measure(self, name: str) -> _Span:
        """A context that adds its duration to ``name``."""
        return _Span(self.seconds, name)


class _Span:
    def __init__(self, into: dict[str, float], name: str) -> None:
        self._into, self._name, self._start = into, name, 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._into[self._name] += time.perf_counter() - self._start


class Recorder:
    """Accumulates what workers and learner report: means over all updates since the report before."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.episodes_lifetime = 0
        self.positions_reanalyzed = 0
        self._returns: deque[float] = deque(maxlen=100)
        self._lengths: deque[int] = deque(maxlen=100)
        self._entropy, self._arrival_lag = NAN, NAN
        self._lags: list[Array] = []
        self._losses: list[LossOutput] = []
        self._reported = False

    def add_collect(self, result: CollectResult, arrival_lag: int) -> None:
        """One collect's episodes and statistics."""
        self._returns.extend(result.episode_returns)
        self._lengths.extend(result.episode_lengths)
        self.episodes_lifetime += len(result.episode_returns)
        self._entropy, self._arrival_lag = result.search_entropy, float(arrival_lag)
        self.timers.seconds["collect"] += result.seconds

    def add_update(self, output: LossOutput, lag: Array) -> None:
        """One update's losses, and the policy lag of each trained sample."""
        if self._reported:  # a report without updates repeats the one before
            self._losses, self._lags, self._reported = [], [], False
        self._losses.append(output)
        self._lags.append(lag)

    def report(self) -> dict[str, Any]:
        """Flat keys; NaN where nothing is known yet."""
        out: dict[str, Any] = {
            "env_runners/episode_return_mean": _mean(self._returns),
            "env_runners/episode_return_max": max(self._returns, default=NAN),
            "env_runners/episode_return_min": min(self._returns, default=NAN),
            "env_runners/episode_len_mean": _mean(self._lengths),
            "env_runners/num_episodes_lifetime": self.episodes_lifetime,
            "env_runners/search_entropy": self._entropy,
            "buffer/positions_reanalyzed_total": self.positions_reanalyzed,
            "async/arrival_lag": self._arrival_lag,
        }
        self._reported = True
        lags = np.concatenate(self._lags) if self._lags else np.array([NAN])
        out["async/policy_lag_mean"] = float(lags.mean())
        out["async/policy_lag_p95"] = float(np.quantile(lags, 0.95))
        out["async/policy_lag_max"] = float(lags.max())
        out["learners/total_loss"] = _mean(o.total for o in self._losses)
        for name in _LOSSES:
            out[f"learners/{name}_loss"] = _mean(
                o.terms[name] for o in self._losses if name in o.terms
            )
        for name in ("grad_norm", "lr", "value_clipped_share"):
            out[f"learners/{name}"] = self._losses[-1].metrics[name] if self._losses else NAN
        for name, seconds in self.timers.seconds.items():
            out[f"timers/{name}_s"] = seconds
        return out


def evaluation_report(report: Report, train_iter: int) -> dict[str, Any]:
    """The ``evaluation/`` group; carried forward between evaluations, NaN before the first."""
    result = None if report.latest is None else report.latest.result
    if result is None:
        score = std = length = seconds = lost = NAN
        version = envstep = -1
        episodes = truncated = lag = 0
    else:
        score, std, seconds = result.reward_mean, result.reward_std, result.seconds
        length = float(np.mean(result.episode_lengths))
        lost = float(np.mean(np.array(result.episode_returns) < 0.0))
        version, envstep = result.policy_version, result.envstep
        episodes, truncated = len(result.episode_returns), result.num_truncated
        lag = train_iter - version
    return {
        "evaluation/episode_return_mean": score,
        "evaluation/episode_return_std": std,
        "evaluation/lost_share": lost,  # of episodes with a negative return
        "evaluation/episode_len_mean": length,
        "evaluation/num_episodes": episodes,
        "evaluation/num_truncated": truncated,
        "evaluation/snapshot_version": version,
        "evaluation/envstep": envstep,
        "evaluation/lag_train_iters": lag,
        "evaluation/is_new": int(report.is_new),
        "evaluation/improved": int(report.improved),
        "evaluation/duration_s": seconds,
    }


def _mean(values: Any) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else NAN
