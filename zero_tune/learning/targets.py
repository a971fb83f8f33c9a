"""Value, reward and policy targets of a window, and the masks that say where they hold.

For state k of a window (k = 0..T) the n-step value is
``z_k = sum_{i<m} gamma^i r_{k+i} + gamma^m v(s_{k+m})`` with ``m = min(td_steps, steps left)``
(MuZero, section 3). After a true end the rest is absorbing: reward and value 0. A cut (time limit, lost
worker) bootstraps from its final observation instead, and states past it count nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zero_tune.types import Array, Window


@dataclass(frozen=True)
class TargetSettings:
    """What targets depend on beside the data."""

    num_unroll_steps: int
    td_steps: int
    discount: float
    truncation: str = "bootstrap"  # "terminal": a cut counts as a true end
    value_prefix_horizon: int | None = None  # running reward sums that restart every so many steps


@dataclass(frozen=True)
class WindowTargets:
    """Targets and masks as arrays; see ``types.Targets``."""

    reward: Array  # [B, T] f32
    value: Array  # [B, T+1] f32
    policy_mask: Array  # [B, T+1] f32
    value_mask: Array  # [B, T+1] f32
    reward_mask: Array  # [B, T] f32
    state_mask: Array  # [B, T+1] f32


def bootstrap_index(window: Window, settings: TargetSettings) -> Array:
    """[B, T+1] window index of the state each value target bootstraps from."""
    k = np.arange(settings.num_unroll_steps + 1)[None]
    left = np.clip(window.num_real[:, None] - k, 0, settings.td_steps)
    return np.minimum(k + left, window.rows.shape[1] - 1)


def ends(window: Window, settings: TargetSettings) -> tuple[Array, Array]:
    """(terminated, truncated) [B] under the configured reading of cuts."""
    if settings.truncation == "terminal":
        over = window.terminated | window.truncated
        return over, np.zeros_like(over)
    return window.terminated, window.truncated


def needs_bootstrap(window: Window, settings: TargetSettings) -> Array:
    """[B, T+1] bool: the value target uses the state at ``bootstrap_index``."""
    terminated, truncated = ends(window, settings)
    index = bootstrap_index(window, settings)
    k = np.arange(settings.num_unroll_steps + 1)[None]
    at_end = index >= window.num_real[:, None]
    alive = ~(terminated[:, None] & at_end)
    return alive & ~(truncated[:, None] & (k >= window.num_real[:, None]))


def make_targets(window: Window, bootstrap: Array, settings: TargetSettings) -> WindowTargets:
    """Targets of a window.

    Args:
        window: W = T + td_steps + 1 states.
        bootstrap: [B, T+1] values of the states at ``bootstrap_index``, each from the view of the player
            to move there; ignored where ``needs_bootstrap`` is False.
    """
    steps = settings.num_unroll_steps
    terminated, _ = ends(window, settings)
    real = window.num_real[:, None]
    k = np.arange(steps + 1)[None]
    value = np.zeros((len(window.row), steps + 1), np.float64)
    same = _same_mover(window, steps)
    for i in range(settings.td_steps):
        column = np.minimum(k + i, window.reward.shape[1] - 1)
        reward = np.take_along_axis(window.reward, np.broadcast_to(column, value.shape), 1)
        value += (settings.discount**i) * reward * (k + i < real) * same(k + i)
    index = bootstrap_index(window, settings)
    used = needs_bootstrap(window, settings)
    power = settings.discount ** (index - k).astype(np.float64)
    value += np.where(used, power * bootstrap * same(index), 0.0)
    inside = k < real
    absorbing = terminated[:, None] & ~inside
    legal_target = window.weights[:, : steps + 1].sum(-1) > 0
    return WindowTargets(
        reward=_reward_target(window.reward[:, :steps], settings.value_prefix_horizon),
        value=value.astype(np.float32),
        policy_mask=(inside & legal_target).astype(np.float32),
        value_mask=(inside | absorbing).astype(np.float32),
        reward_mask=(inside | absorbing)[:, :steps].astype(np.float32),
        state_mask=(k <= real).astype(np.float32),
    )


def _same_mover(window: Window, steps: int):  # type: ignore[no-untyped-def]  # a closure over arrays
    players = window.to_play.astype(np.int64)
    base = players[:, : steps + 1]

    def sign(index: Array) -> Array:
        """+1 where the player to move at ``index`` [., T+1] is the one at state k, else -1."""
        column = np.broadcast_to(np.minimum(index, players.shape[1] - 1), base.shape)
        return np.where(np.take_along_axis(players, column, 1) == base, 1.0, -1.0)

    return sign


def _reward_target(reward: Array, horizon: int | None) -> Array:
    if horizon is None:
        return reward.astype(np.float32)
    out = np.zeros_like(reward, np.float32)
    total: Array = np.zeros(len(reward), np.float32)
    for k in range(reward.shape[1]):
        total = reward[:, k] + (0.0 if k % horizon == 0 else total)
        out[:, k] = total
    return out
