"""The rows: a struct of arrays used as a ring, with links along each episode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zero_tune.types import Array, EnvSpec, Segment

#: What a row is. A transition row waits until its window is complete; it is cut when frames or
#: timesteps it must see have been overwritten. The two tail kinds hold an episode's last observation.
FREE, WAITING, DRAWABLE, CUT, TERMINAL, TRUNCATED = range(6)


class FinalState(NamedTuple):
    """What was seen after the last transition of a segment."""

    obs: Array  # [C, H, W] or [F]
    legal: Array  # [A] bool
    to_play: int
    timestep: int


class RowStore:
    """One row per transition, and one tail row (an observation only) per episode end.

    ``next_row`` and ``prev_row`` link the rows of an episode across its segments; at either end of a
    chain a row links to itself, so following links needs no case distinction. Writing overwrites the
    oldest rows, in the order in which they were written.

    Args:
        env: shapes and dtypes of observations and actions.
        capacity: rows.
        num_slots: policy weights per transition.
        candidate_dim: size of one candidate action, 0 where slot k stands for action k.
        reach: earlier rows of its episode that a drawable row needs.
    """

    def __init__(
        self, env: EnvSpec, capacity: int, num_slots: int, candidate_dim: int, reach: int
    ) -> None:
        num_actions = env.action.size if env.action.kind == "discrete" else 0
        action_dtype = env.action.dtype
        self.capacity, self.reach = capacity, reach
        # zeros, not empty: pages are committed as rows are written, so a young buffer is small.
        self.obs = np.zeros((capacity, *env.obs_shape), env.obs_dtype)
        self.action = np.zeros((capacity, env.action.dim), action_dtype)
        self.reward = np.zeros(capacity, np.float32)
        self.root_value = np.zeros(capacity, np.float32)
        self.weights = np.zeros((capacity, num_slots), np.float32)
        self.candidates = (
            np.zeros((capacity, num_slots, candidate_dim), action_dtype) if candidate_dim else None
        )
        self.legal = np.zeros((capacity, num_actions), np.bool_)
        self.chance = np.full(capacity, -1, np.int32) if env.chance_size else None
        self.to_play = np.zeros(capacity, np.int8)
        self.timestep = np.zeros(capacity, np.int32)
        self.policy_version = np.zeros(capacity, np.int64)
        self.priority = np.zeros(capacity, np.float64)
        self.times_reanalyzed = np.zeros(capacity, np.int32)
        self.segment_start = np.zeros(capacity, np.bool_)
        self.status = np.zeros(capacity, np.uint8)
        self.generation = np.zeros(capacity, np.int64)
        self.next_row = np.arange(capacity, dtype=np.int64)
        self.prev_row = np.arange(capacity, dtype=np.int64)
        self.cursor = 0  # the row written next
        self.size = 0  # rows in use; the oldest is at cursor - size
        self.num_segments = 0  # segments whose first row is in use
        self._counts = np.zeros(TRUNCATED + 1, np.int64)
        self._counts[FREE] = capacity

    def columns(self) -> dict[str, Array]:
        """Every per-row array by name, each [capacity, ...]."""
        fields = vars(self).items()
        return {k: v for k, v in fields if isinstance(v, np.ndarray) and k[0] != "_"}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(column.nbytes for column in self.columns().values())

    def live_rows(self) -> Array:
        """[size] int64 rows in use, oldest first."""
        return (self.cursor - self.size + np.arange(self.size)) % self.capacity

    def age(self, rows: Any) -> Any:
        """Rows written after each of ``rows``, an int or an array; the newest has age 0."""
        return (self.cursor - 1 - rows) % self.capacity

    def count(self, *kinds: int) -> int:
        """Number of rows of these kinds."""
        return int(sum(self._counts[kind] for kind in kinds))

    def set_status(self, rows: Array, kind: int | Array) -> None:
        """Make distinct ``rows`` [n] of ``kind``, one for all or [n]."""
        size = len(self._counts)
        self._counts -= np.bincount(self.status[rows], minlength=size)
        self.status[rows] = kind
        self._counts += np.bincount(self.status[rows], minlength=size)

    def recount(self) -> None:
        """Derive the counters from the columns, after these were replaced."""
        self._counts[:] = np.bincount(self.status, minlength=len(self._counts))
        self.num_segments = int(np.count_nonzero(self.segment_start & (self.status != FREE)))

    def is_live(self, row: int, generation: int) -> bool:
        """Whether ``row`` still holds what was written in its ``generation``-th write."""
        return bool(self.generation[row] == generation and self.status[row] != FREE)

    def chain_before(self, row: int, most: int) -> Array:
        """Up to ``most`` linked rows ending with ``row``, oldest first; empty if ``row`` is -1."""
        found: list[int] = []
        while row >= 0 and len(found) < most:
            found.append(row)
            before = int(self.prev_row[row])
            row = -1 if before == row else before
        return np.array(found[::-1], np.int64)

    def claim(self, count: int) -> tuple[Array, Array]:
        """Take the next ``count`` rows of the ring, overwriting the oldest.

        Returns:
            The rows claimed [count], and the rows that were drawable and are no longer: overwritten
            ones, and ones that have lost a row within ``reach``.
        """
        rows = (self.cursor + np.arange(count)) % self.capacity
        lost = self._evict(rows)
        self.generation[rows] += 1
        self.cursor = (self.cursor + count) % self.capacity
        self.size = min(self.size + count, self.capacity)
        return rows, lost

    def _evict(self, rows: Array) -> Array:
        used = rows[self.status[rows] != FREE]
        lost = [used[self.status[used] == DRAWABLE]]
        self.num_segments -= int(np.count_nonzero(self.segment_start[used]))
        self.set_status(used, FREE)
        # Rows of an episode are overwritten from its start, so a survivor follows the last one lost.
        after = self.next_row[used]
        after = after[self.status[after] != FREE]
        self.prev_row[after] = after
        for _ in range(self.reach):
            if not len(after):
                break
            status = self.status[after]
            lost.append(after[status == DRAWABLE])
            self.set_status(after[status <= DRAWABLE], CUT)
            following = self.next_row[after]
            after = following[following != after]
        return np.concatenate(lost)

    def write(self, rows: Array, segment: Segment, priority: Array, before: Array) -> None:
        """Copy the transitions of ``segment`` into ``rows`` [L] and link them.

        Args:
            before: rows of the same episode that precede it, oldest first; empty if there are none.
        """
        count = len(rows)
        self.obs[rows] = segment.obs[:count]
        self.action[rows] = segment.action
        self.reward[rows] = segment.reward
        self.root_value[rows] = segment.root_value
        self.weights[rows] = segment.weights
        self.legal[rows] = segment.legal[:count]
        self.to_play[rows] = segment.to_play[:count]
        self.timestep[rows] = segment.timestep
        self.policy_version[rows] = segment.policy_version
        self.priority[rows] = priority
        self.times_reanalyzed[rows] = 0
        self.segment_start[rows] = False
        self.segment_start[rows[0]] = True
        self.num_segments += 1
        if self.candidates is not None and segment.candidates is not None:
            self.candidates[rows] = segment.candidates
        if self.chance is not None and segment.chance is not None:
            self.chance[rows] = segment.chance
        known = len(before) + np.arange(count)
        missing = known < np.minimum(segment.timestep, self.reach)
        self.set_status(rows, np.where(missing, CUT, WAITING))
        self.prev_row[rows[0]] = rows[0]
        self._link(np.concatenate([before[-1:], rows]))

    def write_tail(self, row: int, final: FinalState, kind: int, before: int) -> None:
        """Write an episode's last observation into ``row`` and link it after row ``before``."""
        self.obs[row] = final.obs
        self.legal[row] = final.legal
        self.to_play[row] = final.to_play
        self.timestep[row] = final.timestep
        self.policy_version[row] = self.policy_version[before]
        for name in ("action", "reward", "root_value", "weights", "priority", "times_reanalyzed"):
            getattr(self, name)[row] = 0
        if self.candidates is not None:
            self.candidates[row] = 0
        if self.chance is not None:
            self.chance[row] = -1
        self.segment_start[row] = False
        self.set_status(np.array([row]), kind)
        self._link(np.array([before, row]))

    def rewrite_policy(
        self,
        row: Array,
        generation: Array,
        weights: Array,
        candidates: Array | None,
        root_value: Array,
    ) -> int:
        """Replace policy target and search value of transitions still in this generation; how many."""
        status = self.status[row]
        current = (self.generation[row] == generation) & (status > FREE) & (status < TERMINAL)
        rows = row[current]
        if self.candidates is not None:
            if candidates is None:
                raise ValueError("candidates must come with the weights of a sampled policy")
            self.candidates[rows] = candidates[current]
        self.weights[rows] = weights[current]
        self.root_value[rows] = root_value[current]
        self.times_reanalyzed[rows] += 1
        return len(rows)

    def _link(self, chain: Array) -> None:
        self.next_row[chain[:-1]] = chain[1:]
        self.next_row[chain[-1]] = chain[-1]
        self.prev_row[chain[1:]] = chain[:-1]

    def reset(self) -> None:
        """The state of a new store, generations included; old contents stay but are unreachable."""
        self.clear()
        self.generation[:] = 0
        self.cursor = 0

    def clear(self) -> None:
        """Free every row. Generations go on, so that nothing written later looks like an old row."""
        self.status[:] = FREE
        self.size = 0
        self.recount()
