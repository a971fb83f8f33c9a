"""Observation to action: history, root inference, search. Used by collectors, evaluators and users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zero_tune.acting.history import HistoryRing
from zero_tune.config import PolicyConfig, need
from zero_tune.models.inference import InferenceModel
from zero_tune.ops.rng import row_generators
from zero_tune.types import Array, EnvSpec, SearchResult, Snapshot

if TYPE_CHECKING:
    from zero_tune.interfaces import Search


class Agent:
    """Acts in ``num_slots`` environments, always as one batch of that size.

    A batch of fixed size makes a slot's numbers independent of which other slots still play: libraries
    may round differently for other batch sizes.

    Args:
        model: inference-only network.
        search: from ``policies.build_search``.
        seed: of all draws; a row's draws depend on (seed, stream, step) alone.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        env: EnvSpec,
        model: InferenceModel,
        search: Search,
        *,
        num_slots: int,
        seed: int,
    ) -> None:
        self.policy, self.env, self.model, self.search = policy, env, model, search
        self.num_slots, self.seed = num_slots, seed
        stack = need(policy.model.frame_stack_num, "policy.model.frame_stack_num")
        self.history = HistoryRing(
            num_slots, model.history_length, stack, env.obs_shape, env.obs_dtype, env.action
        )
        width = env.action.size if env.action.kind == "discrete" else 0
        self._legal = np.ones((num_slots, width), bool)
        self._to_play = np.full(num_slots, -1, np.int8)

    def load(self, snapshot: Snapshot) -> bool:
        """Use a snapshot's weights; False if that version is loaded already."""
        if snapshot.version == self.model.version:
            return False
        self.model.load(snapshot.model_state, snapshot.version)
        return True

    def observe(self, slots: Array, frames: Array, legal: Array, to_play: Array) -> None:
        """Take in the newest observations of ``slots``."""
        self.history.append(slots, frames)
        self._legal[slots] = legal
        self._to_play[slots] = to_play

    def act(
        self,
        stream: Array,
        step: Array,
        *,
        explore: bool,
        temperature: float = 1.0,
        epsilon: float = 0.0,
    ) -> SearchResult:
        """Search in every slot; rows of slots that do not play are to be ignored.

        Args:
            stream: [num_slots] what the row's draws are named after (a stream, an episode seed).
            step: [num_slots] counter within the stream.
            explore: collection (noise, sampled actions) or evaluation (neither).
        """
        policy = self.policy
        sims = policy.collect_num_simulations if explore else policy.eval_num_simulations
        legal = self._legal
        if legal.shape[1]:
            legal = legal | ~legal.any(1, keepdims=True)  # finished slots: anything goes
        return self.search.run(
            self.model,
            self.model.initial_inference(self.history.view()),
            legal,
            self._to_play,
            row_generators(self.seed, stream, step),
            explore=explore,
            temperature=temperature,
            epsilon=epsilon,
            num_simulations=sims,
        )
