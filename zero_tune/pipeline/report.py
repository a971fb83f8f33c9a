"""The flat dict one iteration reports."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zero_tune.pipeline.metrics import evaluation_report

if TYPE_CHECKING:
    from zero_tune.pipeline.driver import Driver

#: Buffer statistics that are reported; the ledger's and the pipeline's own counters come beside them.
_BUFFER = (
    "num_rows",
    "num_drawable",
    "num_episodes",
    "num_open_streams",
    "fill",
    "policy_version_mean",
    "policy_version_min",
    "reanalyzed_share",
    "bytes",
    "rows_appended_total",
    "segments_appended_total",
    "broken_chains_total",
    "dropped_priorities_total",
    "dropped_policies_total",
)


@dataclass(frozen=True)
class Progress:
    """Counters at one moment."""

    time: float
    envstep: int
    train_iter: int
    collect_s: float

    @classmethod
    def of(cls, driver: Driver) -> Progress:
        """The driver's counters now."""
        return cls(
            time.perf_counter(),
            driver.ledger.envstep,
            driver.learner.train_iter,
            driver.recorder.timers.seconds["collect"],
        )


class Reporter:
    """Turns a driver's state into a report; buffer statistics are refreshed at their own interval."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._buffer: dict[str, float] = {}
        self._buffer_iter = 0

    def report(self, before: Progress) -> dict[str, Any]:
        """Everything since ``before``, with at most one new evaluation."""
        driver, now = self._driver, Progress.of(self._driver)
        evaluation = driver.evaluations.report()
        out = evaluation_report(evaluation, now.train_iter) | driver.recorder.report()
        out |= self._buffer_stats(now.train_iter)
        elapsed = max(now.time - before.time, 1e-9)
        steps, updates = now.envstep - before.envstep, now.train_iter - before.train_iter
        collectors = driver.config.policy.async_pipeline.num_collector_actors
        out |= {
            "num_env_steps_sampled_lifetime": now.envstep,
            "num_env_steps_sampled": steps,
            "env_runners/env_steps_per_s": steps / elapsed,
            "learners/train_iter": now.train_iter,
            "learners/updates_per_s": updates / elapsed,
            "learners/replay_ratio_actual": now.train_iter / max(1, now.envstep),
            "buffer/ledger_error": driver.ledger.error,
            "buffer/training_started": int(now.train_iter > 0),
            "async/inflight_collect": driver.collects_inflight,
            "async/inflight_eval": driver.evaluations.pending,
            "async/budget_queue": len(driver.budgets),
            "async/updates_owed": driver.budgets.updates_owed,
            "async/published_total": driver.publisher.published_total,
            "async/collector_busy": (now.collect_s - before.collect_s) / (elapsed * collectors),
            "fault_tolerance/num_collector_restarts": driver.restarts["collector"],
            "fault_tolerance/num_evaluator_restarts": driver.restarts["evaluator"],
            "fault_tolerance/env_steps_lost": driver.ledger.lost_steps,
            "timers/iteration_s": elapsed,
        }
        # evaluations that came together are reported one by one before the trial says that it is done
        out["done"] = driver.done and not driver.evaluations.arrived
        return {name: _plain(value) for name, value in out.items()}

    def _buffer_stats(self, train_iter: int) -> dict[str, float]:
        interval = self._driver.config.policy.async_pipeline.buffer_stats_interval
        if train_iter - self._buffer_iter >= interval or self._buffer_iter == 0:
            stats = self._driver.buffer.stats()
            self._buffer = {f"buffer/{name}": stats[name] for name in _BUFFER}
            self._buffer_iter = train_iter
        return self._buffer


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
