"""The replay buffer: segments in, prioritised starts and their windows out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from zero_tune.errors import ConfigError, NonFiniteError
from zero_tune.replay import streams
from zero_tune.replay.ingest import SegmentCheck
from zero_tune.replay.sampler import PrioritySampler
from zero_tune.replay.storage import (
    CUT,
    DRAWABLE,
    FREE,
    TERMINAL,
    TRUNCATED,
    WAITING,
    RowStore,
)
from zero_tune.replay.windows import (
    HistoryArrays,
    Sample,
    StateFields,
    read_history,
    read_observations,
    read_window,
)
from zero_tune.types import Array, EnvSpec, Segment, Window


class ReplayBuffer:
    """Transitions of all streams, drawn with probability proportional to priority ^ alpha.

    A transition can be drawn once the ``num_unroll_steps + td_steps`` states after it are stored, or
    its episode ends among them, and as long as the earlier frames and timesteps it needs are stored.
    What was drawn is known by (row, generation): a write-back that names an overwritten row is dropped
    and counted. Draws are with replacement. There is one owner and no lock.

    Args:
        env: shapes and dtypes of observations and actions.
        capacity: rows; one per transition and one per episode end. The oldest are overwritten.
        num_slots: policy weights per transition.
        candidate_dim: size of one candidate action, 0 where slot k stands for action k.
        frame_stack: frames in one observation.
        history_length: timesteps a root is built from.
        num_unroll_steps: T.
        td_steps: n; a window holds T + n + 1 + ``window_extra`` states.
        use_priority: False draws uniformly; every importance weight is then 1.
        alpha: exponent of the priorities (Schaul et al. 2016).
        beta: exponent of the importance weights.
        max_priority_for_new: new rows get the largest live priority, not |search - network value|.
        window_extra: further states in each window.

    Raises:
        ConfigError: ``capacity`` is too small for a single window.
    """

    def __init__(
        self,
        env: EnvSpec,
        *,
        capacity: int,
        num_slots: int,
        candidate_dim: int = 0,
        frame_stack: int = 1,
        history_length: int = 1,
        num_unroll_steps: int = 5,
        td_steps: int = 5,
        use_priority: bool = True,
        alpha: float = 0.6,
        beta: float = 0.4,
        max_priority_for_new: bool = True,
        window_extra: int = 0,
    ) -> None:
        self.frame_stack, self.history_length = frame_stack, history_length
        self.window_length = num_unroll_steps + td_steps + 1 + window_extra
        reach = frame_stack + history_length - 2
        if capacity < self.window_length + reach:
            raise ConfigError(
                "policy.replay_buffer_size",
                f"must hold one window of {self.window_length} states and {reach} earlier ones",
                capacity,
                f"Set it to {self.window_length + reach} or more.",
            )
        self._check = SegmentCheck(env, num_slots, candidate_dim)
        self._store = RowStore(env, capacity, num_slots, candidate_dim, reach)
        self.sampler = PrioritySampler(
            self._store,
            use_priority=use_priority,
            alpha=alpha,
            beta=beta,
            max_priority_for_new=max_priority_for_new,
        )
        self._open: dict[int, streams.OpenStream] = {}
        self.rows_appended_total = 0  # transitions ever appended
        self.segments_appended_total = 0
        self.broken_chains_total = 0  # episodes cut because their next segment never came
        self.dropped_priorities_total = 0  # write-backs that named a row no longer drawable
        self.dropped_policies_total = 0  # write-backs that named an overwritten row

    @property
    def capacity(self) -> int:
        """Rows, tail rows included."""
        return self._store.capacity

    @property
    def num_rows(self) -> int:
        """Transitions stored, drawable or not."""
        return self._store.count(WAITING, DRAWABLE, CUT)

    @property
    def num_drawable(self) -> int:
        """Transitions that can be drawn."""
        return self._store.count(DRAWABLE)

    @property
    def nbytes(self) -> int:
        """Bytes of the full buffer; a young one has touched fewer."""
        return self._store.nbytes + self.sampler.tree.nbytes

    def append(self, segment: Segment) -> int:
        """Copy a segment in; it continues its stream's episode where that is still open.

        Returns:
            Transitions appended, which is ``len(segment)``.

        Raises:
            ValueError: an array is missing, or has the wrong shape or dtype, or steps are not in order.
            NonFiniteError: a quantity is NaN or infinite.
            ConfigError: the whole buffer is smaller than the segment.
        """
        self._check(segment)
        count, ended = len(segment), segment.terminated or segment.truncated
        if count + ended > self.capacity:
            raise ConfigError(
                "policy.replay_buffer_size",
                f"must hold one segment and its final observation, {count + ended} rows",
                self.capacity,
                "Enlarge it or shorten policy.game_segment_length.",
            )
        last = self._open.pop(segment.stream_id, None)
        if last is not None and not last.is_continued_by(segment):
            self.broken_chains_total += 1
            self._end(last, TRUNCATED)
            last = None
        priority = self.sampler.initial_priority(segment)
        rows = self._claim(count)
        before = self._chain(last)
        self._store.write(rows, segment, priority, before)
        newest = int(rows[-1])
        tip = streams.OpenStream(
            row=newest,
            generation=int(self._store.generation[newest]),
            episode_id=segment.episode_id,
            final=streams.final_state(segment),
        )
        chain = np.concatenate([before, rows])
        self.sampler.activate(chain[: max(0, len(chain) - self.window_length + 1)])
        if ended:
            self._end(tip, TERMINAL if segment.terminated else TRUNCATED)
        else:
            self._open[segment.stream_id] = tip
        self.rows_appended_total += count
        self.segments_appended_total += 1
        return count

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Streams whose newest episode is still open."""
        return tuple(self._open)

    def close_stream(self, stream_id: int) -> bool:
        """End the stream's open episode as truncated, because nothing will follow.

        Returns:
            Whether there was an open episode.
        """
        last = self._open.pop(stream_id, None)
        if last is not None:
            self._end(last, TRUNCATED)
        return last is not None

    def _claim(self, count: int) -> Array:
        rows, lost = self._store.claim(count)
        self.sampler.remove(lost)
        return rows

    def _chain(self, last: streams.OpenStream | None) -> Array:
        """The newest rows of an open episode: all that may be waiting or within reach."""
        if last is None or not self._store.is_live(last.row, last.generation):
            return np.zeros(0, np.int64)
        most = max(self.window_length - 1, self._store.reach, 1)
        return self._store.chain_before(last.row, most)

    def _end(self, last: streams.OpenStream, kind: int) -> None:
        """Write the tail row of an episode, and make drawable what waited for it."""
        store = self._store
        oldest = store.age(last.row) == store.capacity - 1  # the tail would overwrite it
        if oldest or not store.is_live(last.row, last.generation):
            return
        row = int(self._claim(1)[0])
        store.write_tail(row, last.final, kind, last.row)
        self.sampler.activate(self._chain(last))

    def can_sample(self, batch_size: int) -> bool:
        """Whether ``batch_size`` rows are drawable, or all that a full buffer will ever have."""
        full = self._store.size == self.capacity
        return self.num_drawable >= batch_size or (full and self.num_drawable > 0)

    def sample(
        self, batch_size: int, rng: np.random.Generator, *, stratified: bool = True
    ) -> Sample:
        """Draw start rows with replacement, and their weights (N p) ^ -beta / max.

        Args:
            batch_size: B.
            rng: source of the draws.
            stratified: one draw from each of B equal shares of the total weight, in ring order.

        Raises:
            ValueError: no row can be drawn.
        """
        return self.sampler.sample(batch_size, rng, stratified)

    def probability(self, rows: Array) -> Array:
        """[...] f64 probability of each of ``rows`` in one draw; exactly 0 where not drawable."""
        return self.sampler.probability(rows)

    def window(self, row: Array) -> Window:
        """The states and transitions from each of ``row`` [B] on."""
        return read_window(self._store, row, self.window_length)

    def observations(self, rows: Array) -> Array:
        """Stacked observations [..., F*C, H, W] or [..., F*O] of ``rows`` [...], oldest frame first.

        Before an episode's start its first frame repeats. The stored dtype is kept.
        """
        return read_observations(self._store, rows, self.frame_stack)

    def history(self, rows: Array) -> HistoryArrays:
        """What the acting side would hold at each of ``rows`` [N], tail rows included."""
        return read_history(self._store, rows, self.history_length, self.frame_stack)

    def state_fields(self, rows: Array) -> StateFields:
        """Legal actions and player to move at ``rows`` [...]."""
        return StateFields(self._store.legal[rows], self._store.to_play[rows])

    def generation_of(self, rows: Array) -> Array:
        """[...] int64, how often each of ``rows`` has been written."""
        return np.asarray(self._store.generation[rows])

    def times_reanalyzed(self, rows: Array) -> Array:
        """[...] int32, how often each of ``rows`` got a new policy since it was written."""
        return np.asarray(self._store.times_reanalyzed[rows])

    def age(self, rows: Array) -> Array:
        """[...] int64, how many rows have been written after each of ``rows``."""
        return np.asarray(self._store.age(rows))

    def oldest_rows(self, share: float) -> Array:
        """[n] int64 drawable rows among the oldest ``share`` of all rows, oldest first."""
        rows = self._store.live_rows()[: math.ceil(share * self._store.size)]
        return np.asarray(rows[self._store.status[rows] == DRAWABLE])

    def update_priority(self, row: Array, generation: Array, priority: Array) -> int:
        """Set the priority of rows that are still what was drawn; of a repeated row the last counts.

        Args:
            row: [B] from a sample.
            generation: [B] from the same sample.
            priority: [B] >= 0.

        Returns:
            Write-backs applied. The others are dropped and counted.

        Raises:
            NonFiniteError: a priority is NaN, infinite or negative.
        """
        applied = self.sampler.update(row, generation, priority)
        self.dropped_priorities_total += len(row) - applied
        return applied

    def update_policy(
        self,
        row: Array,
        generation: Array,
        weights: Array,
        candidates: Array | None,
        root_value: Array,
    ) -> int:
        """Replace policy target and search value of rows that are still what they were.

        Args:
            row: [N] transition rows.
            generation: [N] what ``generation_of(row)`` was when they were read.
            weights: [N, K].
            candidates: [N, K, D], or None where slot k stands for action k.
            root_value: [N].

        Returns:
            Rows changed. Overwritten rows, and tail rows, which have no policy, are left alone.

        Raises:
            NonFiniteError: a weight, candidate or value is NaN or infinite.
        """
        given = {"policy weights": weights, "root_value": root_value, "candidates": candidates}
        for name, value in given.items():
            if value is not None and not np.isfinite(value).all():
                raise NonFiniteError(name, "in a reanalysed policy")
        changed = self._store.rewrite_policy(row, generation, weights, candidates, root_value)
        self.dropped_policies_total += len(row) - changed
        return changed

    def stats(self) -> dict[str, float]:
        """Fill, age and counters; one pass over the rows in use."""
        store = self._store
        used = store.status != FREE
        version = store.policy_version[used] if used.any() else np.zeros(1, np.int64)
        reanalyzed = np.count_nonzero(store.times_reanalyzed[used])
        stats: dict[str, float] = {
            "num_rows": self.num_rows,
            "num_drawable": self.num_drawable,
            "num_segments": store.num_segments,
            "num_episodes": store.count(TERMINAL, TRUNCATED),
            "num_open_streams": len(self._open),
            "fill": store.size / self.capacity,
            "policy_version_mean": version.mean(),
            "policy_version_min": version.min(),
            "policy_version_max": version.max(),
            "reanalyzed_share": reanalyzed / max(1, self.num_rows),
            "max_priority": self.sampler.tree.max_priority,
            "bytes": self.nbytes,
            "bytes_per_row": self.nbytes / self.capacity,
        }
        return {k: float(v) for k, v in (stats | self._counters()).items()}

    def _counters(self) -> dict[str, int]:
        return {k: v for k, v in vars(self).items() if k.endswith("_total")}

    def clear(self) -> None:
        """Forget every transition and open episode; counters and generations go on."""
        self._store.clear()
        self.sampler.tree.clear()
        self._open.clear()

    def save(self, folder: str | Path) -> None:
        """Write the exact state into ``folder``, made if need be, as Arrow files."""
        from zero_tune.replay.persistence import save_state

        state = (self._store, self.sampler, self._open, self._counters())
        save_state(Path(folder), *state, window_length=self.window_length)

    def load(self, folder: str | Path) -> None:
        """Replace the whole state by a saved one; own priority exponents and mode stay in force.

        Raises:
            SnapshotMismatch: the files are missing or damaged, or belong to another capacity,
                environment, search or window. The buffer is empty then.
        """
        from zero_tune.replay.persistence import load_state

        try:
            self._open, counters = load_state(
                Path(folder), self._store, self.sampler, window_length=self.window_length
            )
        except BaseException:
            self.clear()
            raise
        vars(self).update(counters)
