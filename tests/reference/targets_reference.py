"""Targets computed one state at a time from a whole episode, the slow and obvious way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Episode:
    """A whole episode: T transitions, T + 1 states."""

    reward: np.ndarray  # [T]
    value: np.ndarray  # [T+1] target-network values
    to_play: np.ndarray  # [T+1]
    terminated: bool


def sign(a: int, b: int) -> float:
    return 1.0 if a == b else -1.0


def value_target(episode: Episode, t: int, td_steps: int, discount: float) -> float | None:
    """z_t; None where a cut leaves nothing to say."""
    length = len(episode.reward)
    if t >= length:
        return 0.0 if episode.terminated else None
    total, mover = 0.0, episode.to_play[t]
    for i in range(td_steps):
        if t + i == length:
            break
        total += discount**i * episode.reward[t + i] * sign(mover, episode.to_play[t + i])
    last = min(t + td_steps, length)
    if last == length and episode.terminated:
        return total
    return total + discount ** (last - t) * episode.value[last] * sign(mover, episode.to_play[last])


def reward_target(episode: Episode, t: int) -> float | None:
    """Reward of transition t."""
    if t < len(episode.reward):
        return float(episode.reward[t])
    return 0.0 if episode.terminated else None


def prefix_targets(episode: Episode, t: int, steps: int, horizon: int) -> list[float | None]:
    """Sum of rewards since the last restart at k = 0, horizon, ... for each unroll step."""
    out: list[float | None] = []
    total = 0.0
    for k in range(steps):
        reward = reward_target(episode, t + k)
        total = (0.0 if k % horizon == 0 else total) + (reward or 0.0)
        out.append(None if reward is None else total)
    return out
