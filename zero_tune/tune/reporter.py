"""A live table of a search, narrow enough for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune

from zero_tune.parsing import get_path
from zero_tune.tune.trainable import SCORE

_COLUMNS = (
    ("env steps", "num_env_steps_sampled_lifetime", "d"),
    ("updates", "learners/train_iter", "d"),
    ("steps/s", "env_runners/env_steps_per_s", ".0f"),
    ("return", "env_runners/episode_return_mean", ".1f"),
    ("score", SCORE, ".1f"),
)


class LiveTable(tune.Callback):
    """Prints one row per trial, at most every ``interval_s`` seconds.

    Args:
        varied: dotted config keys that the search varies.
        write: where lines go.
    """

    def __init__(
        self, varied: Sequence[str], write: Callable[[str], Any] = print, interval_s: float = 15.0
    ) -> None:
        self._varied, self._write, self._interval = list(varied), write, interval_s
        self._rows: dict[str, dict[str, Any]] = {}
        self._start = self._last = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has its row from the start, so that one without any result is seen too."""
        self._row(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Remember the row; print if it is time."""
        row = self._row(trial)
        row["result"], row["status"] = result, "running"
        score = result.get(SCORE, float("nan"))
        row["best"] = max(row["best"], score) if score == score else row["best"]
        if time.monotonic() - self._last >= self._interval:
            self.show()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A finished trial keeps its last row."""
        self._end(trial, "ended")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A failed one too; Ray has logged its traceback."""
        self._end(trial, "FAILED")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """The final table."""
        self.show()

    def _row(self, trial: Any) -> dict[str, Any]:
        fresh = {"best": float("-inf"), "config": trial.config, "status": "starting"}
        return self._rows.setdefault(trial.trial_id, fresh)

    def _end(self, trial: Any, status: str) -> None:
        self._row(trial)["status"] = status
        self.show()

    def show(self) -> None:
        """Print the table now."""
        self._last = time.monotonic()
        names = [key.removeprefix("policy.") for key in self._varied]
        header = ["trial", "status", *(c[0] for c in _COLUMNS), "best", *names]
        body = [self._cells(trial, row) for trial, row in self._rows.items()]
        widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
        self._write(f"\n{self._last - self._start:.0f} s")
        for line in [header, *body]:
            self._write("  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)))

    def _cells(self, trial: str, row: dict[str, Any]) -> list[str]:
        result = row.get("result")
        shown = [format(result[key], form) if result else "-" for _, key, form in _COLUMNS]
        best = f"{row['best']:.1f}" if result else "-"
        values = [get_path(row["config"], key) for key in self._varied]
        params = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in values]
        return [trial[-8:], row["status"], *shown, best, *params]
