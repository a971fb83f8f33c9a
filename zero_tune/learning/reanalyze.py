"""Fresh policy targets for old data, from a search with the target network (MuZero Reanalyse)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from zero_tune.config import PolicyConfig, need
from zero_tune.ops.rng import row_generators
from zero_tune.types import Array, EnvSpec, History

if TYPE_CHECKING:
    from zero_tune.interfaces import Search
    from zero_tune.learning.learner import Learner
    from zero_tune.replay.buffer import ReplayBuffer

#: Streams of reanalysis searches are numbered away from those of acting.
_STREAM = 1 << 40


def read_history(buffer: ReplayBuffer, rows: Array) -> History:
    """Histories that end at ``rows`` as tensors."""
    return History(*(torch.from_numpy(x) for x in buffer.history(rows)))


class Reanalyzer:
    """Searches stored states again and writes the new targets back.

    Args:
        learner: its target network searches.
        seed: of the searches' row generators.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        env: EnvSpec,
        buffer: ReplayBuffer,
        learner: Learner,
        search: Search,
        *,
        seed: int,
    ) -> None:
        self.policy, self.env, self.buffer = policy, env, buffer
        self.learner, self.search, self.seed = learner, search, seed
        self.calls = 0

    def refresh(self, rows: Array) -> int:
        """New weights, candidates and root values for ``rows``; returns how many were written."""
        rows = np.unique(rows)
        written = 0
        for start in range(0, len(rows), self.policy.mini_infer_size):
            written += self._refresh_chunk(rows[start : start + self.policy.mini_infer_size])
        return written

    def _refresh_chunk(self, rows: Array) -> int:
        generation = self.buffer.generation_of(rows)
        model = self.learner.target_model
        root = model.initial_inference(read_history(self.buffer, rows))
        fields = self.buffer.state_fields(rows)
        rng = row_generators(self.seed, rows + _STREAM, np.full(len(rows), self.calls))
        self.calls += 1
        result = self.search.run(
            model,
            root,
            fields.legal,
            fields.to_play,
            rng,
            explore=self.policy.reanalyze_noise,
            temperature=1.0,
            num_simulations=need(self.policy.num_simulations, "policy.num_simulations"),
        )
        return self.buffer.update_policy(
            rows, generation, result.target.weights, result.target.actions, result.value
        )

    def state_dict(self) -> dict[str, Any]:
        """The counter that seeds searches."""
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.calls = int(state["calls"])


class BufferReanalyzer(Reanalyzer):
    """Passes over the oldest part of the buffer, a batch of positions at a time."""

    def run_pass(self) -> int:
        """Refresh ``reanalyze_batch_size`` windows of the oldest share; returns positions written."""
        unroll = need(self.policy.num_unroll_steps, "policy.num_unroll_steps")
        oldest = self.buffer.oldest_rows(self.policy.reanalyze_partition)
        if (
            len(oldest) // unroll
            <= self.policy.reanalyze_batch_size / self.policy.reanalyze_partition
        ):
            return 0
        times = self.buffer.times_reanalyzed(oldest)
        weight = np.exp(-np.minimum(times, 50.0))
        rng = np.random.default_rng((self.seed, 2, self.calls))
        count = min(self.policy.reanalyze_batch_size, len(oldest))
        rows = rng.choice(oldest, size=count, replace=False, p=weight / weight.sum())
        window = self.buffer.window(rows)
        inside = np.arange(unroll + 1)[None] < window.num_real[:, None]
        return self.refresh(window.rows[:, : unroll + 1][inside])
