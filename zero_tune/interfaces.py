"""The protocols between parts. A policy type is one choice per protocol; see ``policies.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from zero_tune.types import (
    Array,
    CollectResult,
    CollectTask,
    EvalResult,
    EvalTask,
    History,
    LatentState,
    RootOutput,
    SampleBatch,
    SearchResult,
    Snapshot,
    StepOutput,
    UnrollOutput,
)

if TYPE_CHECKING:
    from torch import Tensor


class NodeStore(Protocol):
    """Latent states of one batch of trees, addressed by node number (0 = root)."""

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        """Create node ``node`` of every tree and return the network's output for it.

        Args:
            node: number of the new node, 1..num_simulations, the same for every tree.
            parent: [B] int32 node numbers to expand from.
            action: [B, D] action (or [B, 1] chance code) taken there.
        """


class WorldModel(Protocol):
    """What a latent state is and how it advances.

    Implementations are ``torch.nn.Module``. In ``eval()`` mode row i of every output depends on row i
    of the input alone. Nothing survives between calls: no acting state, no cache.
    """

    history_length: int  # M, timesteps a root is built from
    num_policy_params: int  # P
    needs_future_obs: bool  # unroll reads obs of states t+1..t+T
    needs_history: bool  # unroll reads the history of state t

    def initial_inference(self, history: History) -> RootOutput:
        """Root latent, policy and value of the newest observation in ``history``."""

    def recurrent_inference(self, state: LatentState, action: Tensor) -> StepOutput:
        """Advance ``state`` by ``action`` [B, D] (a chance code where the state is a chance node)."""

    def unroll(self, batch: SampleBatch) -> UnrollOutput:
        """The training forward pass."""

    def node_store(self, root: RootOutput, num_simulations: int) -> NodeStore:
        """Storage for one search from ``root``."""


@runtime_checkable
class Search(Protocol):
    """One search per root, over any model, proposal and rule."""

    num_slots: int  # K, weights of a policy target

    def run(
        self,
        model: Any,
        root: RootOutput,
        legal: Array,
        to_play: Array,
        rng: Array,
        *,
        explore: bool,
        temperature: float = 1.0,
        epsilon: float = 0.0,
        num_simulations: int | None = None,
    ) -> SearchResult:
        """Search from ``root``.

        Args:
            model: provides ``node_store``.
            legal: [B, A] bool; width 0 for continuous actions.
            to_play: [B] int8, -1 for one player.
            rng: [B] uint64 row generator states, so a row's result does not depend on its batch.
            explore: root noise and sampled action (collect); False: none, best action (evaluation).
            temperature: of the visit counts when ``explore``.
            epsilon: share of uniform legal actions when ``explore``; targets are unchanged.
        """


class LossTerm(Protocol):
    """One error per sample, already summed over the unroll steps and masked."""

    def __call__(self, output: UnrollOutput, batch: SampleBatch) -> Tensor:
        """[B]."""


class WorkerPool(Protocol):
    """Runs collects and evaluations for the driver; knows nothing of training.

    ``LocalPool`` finishes at once (sync), ``RayPool`` wraps actors (async), ``ScriptedPool`` is the
    tests'. Results of tasks submitted before ``invalidate()`` are dropped.
    """

    def idle_collectors(self) -> Sequence[int]:
        """Numbers of the collectors that can take a task now."""

    def idle_evaluators(self) -> Sequence[int]:
        """Numbers of the evaluators that can take a task now."""

    def publish(self, snapshot: Snapshot) -> None:
        """Make ``snapshot`` the one that tasks with its version use; one copy per version."""

    def submit_collect(self, worker: int, task: CollectTask) -> None:
        """Give collector ``worker`` one collect."""

    def submit_eval(self, worker: int, task: EvalTask, snapshot: Snapshot) -> None:
        """Give evaluator ``worker`` one evaluation of exactly ``snapshot``."""

    def poll(self, timeout_s: float) -> list[Any]:
        """Finished work, waiting at most ``timeout_s`` for the first: `pipeline.events` records."""

    def respawn(self, worker: int, kind: str, incarnation: int) -> None:
        """Put a new worker in the place of a lost one; ``incarnation`` is a number never used before."""

    def invalidate(self, incarnation: int) -> None:
        """Forget all work in flight (after a checkpoint was loaded); collectors start over."""

    def shutdown(self, timeout_s: float) -> None:
        """End every worker; idempotent."""


class Collector(Protocol):
    """Steps its environments with one snapshot until enough segments are finished."""

    def load(self, snapshot: Snapshot) -> None:
        """Use these weights from now on; the same version again is free."""

    def collect(self, task: CollectTask) -> CollectResult:
        """Collect ``num_segments`` finished segments; open ones stay for the next call."""

    def close(self) -> None:
        """Close the environments."""


class Evaluator(Protocol):
    """Plays one greedy episode per seed."""

    def load(self, snapshot: Snapshot) -> None:
        """Use these weights from now on."""

    def evaluate(self, task: EvalTask) -> EvalResult:
        """Score the loaded snapshot; the same task and weights give the same result to the bit."""

    def close(self) -> None:
        """Close the environments."""
