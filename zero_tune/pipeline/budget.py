"""Train budgets: how many updates the collected data has paid for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass
class Budget:
    """Updates owed for one collect."""

    total: int
    done: int = 0


class TrainBudgets:
    """A queue of budgets, first in first out.

    Args:
        update_per_collect: a fixed number per collect; wins over ``replay_ratio``.
        replay_ratio: updates per env step. Fractions are carried over, so that the sum of all budgets is
            ``floor(replay_ratio * env steps)``.
    """

    def __init__(self, update_per_collect: int | None, replay_ratio: float) -> None:
        self._fixed, self._ratio = update_per_collect, replay_ratio
        self._carry = 0.0
        self._queue: deque[Budget] = deque()
        self.completed = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def head(self) -> Budget | None:
        """The budget in progress."""
        return self._queue[0] if self._queue else None

    @property
    def at_boundary(self) -> bool:
        """Whether no budget is half done."""
        return not self._queue or self._queue[0].done == 0

    @property
    def updates_owed(self) -> int:
        """Updates left in all budgets."""
        return sum(b.total - b.done for b in self._queue)

    def add(self, envsteps: int) -> None:
        """Queue the budget of one collect of ``envsteps``; an empty one counts as completed."""
        if self._fixed is not None:
            size = self._fixed
        else:
            self._carry += self._ratio * envsteps
            size = int(self._carry + 1e-9)
            self._carry -= size
        if size:
            self._queue.append(Budget(size))
        else:
            self.completed += 1

    def count_update(self) -> bool:
        """One update was made; True if that completed a budget."""
        head = self._queue[0]
        head.done += 1
        if head.done < head.total:
            return False
        self._queue.popleft()
        self.completed += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """Plain Python."""
        return {
            "carry": self._carry,
            "queue": [[b.total, b.done] for b in self._queue],
            "completed": self.completed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self._carry = float(state["carry"])
        self._queue = deque(Budget(total, done) for total, done in state["queue"])
        self.completed = int(state["completed"])
