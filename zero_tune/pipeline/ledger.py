"""Env steps: each one is in the buffer, in an open segment, or counted as lost. Never twice."""

from __future__ import annotations

from typing import Any

from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import CollectResult


class Ledger:
    """Counts env steps and appends segments to the buffer."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer
        self.envstep = 0
        self.lost_steps = 0
        self._base = 0  # steps of an earlier process whose rows this buffer does not hold
        self._appended = 0
        self._open: dict[int, int] = {}
        self._streams: dict[int, set[int]] = {}

    @property
    def error(self) -> int:
        """Steps unaccounted for: always 0."""
        held = self._appended + sum(self._open.values())
        return self.envstep - self._base - held - self.lost_steps

    def absorb(self, worker: int, result: CollectResult) -> None:
        """Take in one collect's segments and steps."""
        for segment in result.segments:
            self._appended += self._buffer.append(segment)
            self._streams.setdefault(worker, set()).add(segment.stream_id)
        self._open[worker] = result.open_steps
        self.envstep += result.envstep_delta

    def close(self, worker: int) -> None:
        """The worker is gone: its streams end here, its open segments are lost."""
        for stream in sorted(self._streams.pop(worker, set())):
            self._buffer.close_stream(stream)
        self.lost_steps += self._open.pop(worker, 0)

    def state_dict(self) -> dict[str, Any]:
        """Plain Python."""
        return {"envstep": self.envstep}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on from a saved number; open segments of the earlier process are gone."""
        for worker in list(self._streams):
            self.close(worker)
        self.envstep = self._base = int(state["envstep"])
        self._appended = self.lost_steps = 0
        self._open.clear()
