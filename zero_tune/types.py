"""Records that cross component boundaries.

Letters in the shape comments: B batch, T unroll steps, L segment length, N tree nodes, K candidate
slots of a node, A discrete actions, D action size (1 for discrete), C chance codes, S support atoms,
P policy parameters, M history length in timesteps, W window rows.

A discrete action is an integer array with D = 1 holding internal indices 0..A-1 (a space that starts
elsewhere is shifted at the environment boundary). A continuous action is float32 in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: What a node of the tree stands for: named tensors with a leading batch axis, private to the model.
LatentState: TypeAlias = "dict[str, Tensor]"


@dataclass(frozen=True)
class ActionSpec:
    """Kind and size of an action space, as the agent sees it."""

    kind: str  # "discrete" | "continuous"
    size: int  # A for discrete, D for continuous

    @property
    def dim(self) -> int:
        """Length D of one stored action."""
        return 1 if self.kind == "discrete" else self.size

    @property
    def dtype(self) -> Any:
        """NumPy dtype of a stored action."""
        return np.int32 if self.kind == "discrete" else np.float32


@dataclass(frozen=True)
class EnvSpec:
    """What a model and a buffer must know of an environment, read from its spaces."""

    env_id: str
    obs_shape: tuple[int, ...]  # one frame, channel first: (C, H, W) or (F,)
    obs_dtype: str  # "uint8" (scaled by 1/255 in the model) | "float32"
    action: ActionSpec
    players: int = 1
    chance_size: int = 0  # number of true chance labels the env reports, 0 = none
    max_episode_steps: int | None = None
    family: str = "vector"  # "vector" | "image" | "board" | "atari": selects the preset
    protocol: Mapping[str, Any] = field(
        default_factory=dict
    )  # effective Atari protocol and the like

    @property
    def is_image(self) -> bool:
        """Whether observations have channels, height and width."""
        return len(self.obs_shape) == 3


class History(NamedTuple):
    """What the acting side has seen of one episode, newest last; the only state across env steps.

    It holds raw data alone, so nothing in it can be stale after new weights. Slots before the start of
    the episode are invalid (``length`` counts the valid ones); their content must not matter.
    ``M = model.history_length`` is 1 for models without memory.
    """

    obs: Tensor  # [B, M, F*C, H, W] uint8 or f32, or [B, M, F*O]: frame-stacked, oldest first
    action: Tensor  # [B, M, D] action[:, m] was executed in obs[:, m]; the last slot is unused
    length: Tensor  # [B] int64, valid timesteps, 1..M
    timestep: Tensor  # [B] int64, step number of the newest observation within its episode


class RootOutput(NamedTuple):
    """Network output at the root of a search."""

    policy: Tensor  # [B, P]
    value: Tensor  # [B] raw scale
    state: LatentState


class StepOutput(NamedTuple):
    """Network output for one edge of the tree."""

    reward: Tensor  # [B] raw scale, on entering the new node; 0 into a chance node
    policy: Tensor  # [B, P]; at a chance node the first C entries are the code logits
    value: Tensor  # [B] raw scale
    state: LatentState
    is_chance: Tensor | None = None  # [B] bool, the new node waits for a chance code; None = never


class UnrollOutput(NamedTuple):
    """Training forward pass over T actions."""

    policy: Tensor  # [B, T+1, P]
    value_logits: Tensor  # [B, T+1, S]
    reward_logits: Tensor  # [B, T, S]; value-prefix models: prefix logits
    latent: Tensor  # [B, T+1, ...]
    extras: dict[str, Tensor] = {}  # noqa: RUF012  loss-term inputs, e.g. projected latents


@dataclass(frozen=True)
class PolicyTarget:
    """A policy target is actions plus weights (after rlax)."""

    actions: Any | None  # [..., K, D] array or tensor; None: slot k is action k
    weights: Any  # [..., K], sums to 1 over legal slots, all zero where there is no target


@dataclass(frozen=True)
class SearchResult:
    """What one search per root found."""

    action: Array  # [B, D] the action to execute
    target: PolicyTarget  # weights [B, K]
    value: Array  # [B] f32 search value at the root, raw scale
    visit_counts: Array  # [B, K] int32
    root_value: Array  # [B] f32 the network's own value, raw scale
    entropy: Array  # [B] f32, base 2, of the distribution the action was drawn from
    root_policy: Array  # [B, K] f32 prior probabilities used at the root (noise included)
    q_values: Array  # [B, K] f32, reward + discount * child value; NaN where unvisited


@dataclass
class Segment:
    """Up to L contiguous transitions of one episode, single frames. All arrays are owned copies."""

    obs: Array  # [L+1, C, H, W] u8 or f32, or [L+1, F] f32; the last one is the final observation
    action: Array  # [L, D]
    reward: Array  # [L] f32
    root_value: Array  # [L] f32 search value
    pred_value: Array  # [L] f32 network value, for the initial priority
    weights: Array  # [L, K] f32
    candidates: Array | None  # [L, K, D] or None
    legal: Array  # [L+1, A] bool (width 0 for continuous actions)
    chance: Array | None  # [L] int32: true code of the transition, -1 = unknown
    to_play: Array  # [L+1] i8: -1 one player, else 1 or 2, the player to move at that observation
    timestep: Array  # [L] i32 within the episode
    stream_id: int  # unique per (actor incarnation, env slot)
    episode_id: int  # unique per stream
    terminated: bool  # after the last transition
    truncated: bool
    policy_version: int

    def __len__(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class Window:
    """Rows t .. t+W-1 of B starts, W = T + td_steps + 1 states; everything a target needs.

    Index w is the state at t+w. ``rows`` past the end of the stored chain repeat its last row.
    """

    row: Array  # [B] int64 start rows
    generation: Array  # [B] int64
    rows: Array  # [B, W] int64, rows for `ReplayBuffer.observations`
    num_real: Array  # [B] int32: transitions known from t on, capped at W-1 (states: one more)
    terminated: Array  # [B] bool: the chain ends within the window, in a true end
    truncated: Array  # [B] bool: ... cut (bootstrap from its final observation)
    action: Array  # [B, W-1, D]; zeros past the end
    reward: Array  # [B, W-1] f32; zeros past the end
    weights: Array  # [B, W, K] f32; zeros past the last transition
    candidates: Array | None  # [B, W, K, D]
    root_value: Array  # [B, W] f32 stored search values
    legal: Array  # [B, W, A] bool
    chance: Array | None  # [B, W-1]
    to_play: Array  # [B, W] i8
    timestep: Array  # [B, W] i32
    policy_version: Array  # [B] int64
    action_kind: str = "discrete"


@dataclass(frozen=True)
class Targets:
    """Training targets on the raw scale, and the masks that say where they hold."""

    reward: Tensor  # [B, T] f32; value-prefix models: running sum since the last reset
    value: Tensor  # [B, T+1] f32
    policy: PolicyTarget  # tensors: weights [B, T+1, K], actions [B, T+1, K, D] or None
    policy_mask: Tensor  # [B, T+1] 1 where the state is real, not final, and has a target
    value_mask: Tensor  # [B, T+1] 1 inside the episode, and past a true end (absorbing)
    reward_mask: Tensor  # [B, T] 1 inside the episode, and past a true end
    state_mask: Tensor  # [B, T+1] 1 where an observation was really seen
    legal: Tensor  # [B, T+1, A] bool


@dataclass(frozen=True)
class SampleBatch:
    """One learner batch, every field a tensor on the learner's device."""

    obs: Tensor  # [B, 1 or T+1, ...] stacked observations of states t (.. t+T if future_obs)
    action: Tensor  # [B, T, D]
    timestep: Tensor  # [B, T+1]
    chance: Tensor | None  # [B, T] int64, -1 unknown
    weight: Tensor  # [B] importance weights, max 1
    row: Array  # [B]
    generation: Array  # [B]
    targets: Targets
    train_iter: int  # the learner's counter before the step
    policy_version: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # [B]
    history: History | None = None  # what acting would hold at state t, for models that ask for it

    def to(self, device: torch.device | str) -> SampleBatch:
        """The same batch with every tensor on ``device``."""
        return _map_tensors(self, lambda x: x.to(device))

    def to_triplet(self) -> list[Any]:
        """``[current_batch, target_batch, train_iter]``, the layout LightZero's UniZero learner takes."""
        current = [self.obs, self.action, self.timestep, self.chance, self.weight, self.row]
        target = [self.targets.reward, self.targets.value, self.targets.policy]
        return [current, target, self.train_iter]


def _map_tensors(record: Any, fn: Any) -> Any:
    """A copy of a dataclass record with ``fn`` applied to each tensor in it, nested records included."""
    import dataclasses

    changes: dict[str, Any] = {}
    for f in fields(record):
        value = getattr(record, f.name)
        if hasattr(value, "device") and hasattr(value, "to"):
            changes[f.name] = fn(value)
        elif isinstance(value, History):
            changes[f.name] = History(*(fn(x) for x in value))
        elif isinstance(value, Targets | PolicyTarget):
            changes[f.name] = _map_tensors(value, fn)
    return dataclasses.replace(record, **changes)


@dataclass(frozen=True)
class LossOutput:
    """Result of one update."""

    total: float
    terms: dict[str, float]  # unweighted batch means by name
    priority: Array  # [B] f32, > 0
    metrics: dict[str, float] = field(default_factory=dict)  # grad_norm, lr, clipped share, ...


@dataclass(frozen=True)
class Snapshot:
    """Immutable weights of one version, on the CPU."""

    version: int  # = train_iter
    envstep: int
    model_state: Mapping[str, Array]  # numpy copies of the model's state dict (buffers included)


@dataclass(frozen=True)
class CollectTask:
    """What a collector is told with each piece of work."""

    task_id: int
    version: int
    train_iter: int
    envstep: int
    temperature: float
    epsilon: float
    random_policy: bool = False  # uniform legal actions (warm-up)


@dataclass
class CollectResult:
    """What one collect brought back."""

    segments: list[Segment]
    envstep_delta: int  # env steps made in this collect, open segments included
    episode_returns: list[float]
    episode_lengths: list[int]
    policy_version: int
    actor_id: int
    seconds: float
    open_steps: int = 0  # transitions held in open segments after this collect
    search_entropy: float = float("nan")  # mean over steps, base 2
    closed_streams: list[int] = field(default_factory=list)  # streams that will send nothing more


@dataclass(frozen=True)
class EvalTask:
    """One evaluation of one snapshot."""

    task_id: int
    version: int
    train_iter: int
    envstep: int
    seeds: tuple[int, ...]  # one episode per seed


@dataclass(frozen=True)
class EvalResult:
    """Score of exactly one snapshot."""

    policy_version: int
    train_iter: int
    envstep: int
    reward_mean: float
    reward_std: float
    episode_returns: tuple[float, ...]
    episode_lengths: tuple[int, ...]
    seeds: tuple[int, ...]
    stop: bool  # reward_mean >= stop_value
    seconds: float
    num_truncated: int = 0  # episodes cut by the evaluation limit
