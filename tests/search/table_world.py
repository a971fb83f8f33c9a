"""A world in exact integer arithmetic, and models of it that need no network.

A state is an integer in [0, 10007). The formulas are those that the golden figures were made with, so a
search over these models can be compared with another implementation's visit for visit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zero_tune.types import Array, RootOutput, StepOutput

M = 10007


def next_state(s: Array, a: Array) -> Array:
    return (31 * s + 17 * a + 7) % M


def value(s: Array) -> Array:
    return (((37 * s) % 1009) / 1009 * 2 - 1).astype(np.float32)


def reward(s: Array) -> Array:
    return (((53 * s) % 211) / 211 - 0.5).astype(np.float32)


def policy(s: Array, width: int) -> Array:
    k = np.arange(width)
    return (((29 * (s[:, None] + 1) * (k + 3)) % 401) / 401 * 4 - 2).astype(np.float32)


def value_prefix(s: Array) -> Array:
    return (((59 * s) % 223) / 223 - 0.5).astype(np.float32)


def afterstate(s: Array, a: Array) -> Array:
    return (41 * s + 13 * a + 5) % M


def afterstate_value(x: Array) -> Array:
    return (((43 * x) % 997) / 997 * 2 - 1).astype(np.float32)


def chance_logits(x: Array, width: int) -> Array:
    c = np.arange(width)
    return (((23 * (x[:, None] + 2) * (c + 2)) % 307) / 307 * 4 - 2).astype(np.float32)


def after_chance(x: Array, c: Array) -> Array:
    return (47 * x + 19 * c + 11) % M


def gaussian(s: Array, dim: int) -> Array:
    k = np.arange(dim)
    mu = (((29 * (s[:, None] + 1) * (k + 3)) % 401) / 401 - 0.5) * 1.2
    sigma = 0.3 + 0.5 * ((13 * (s[:, None] + 2) * (k + 5)) % 307) / 307
    return np.concatenate([mu, sigma], axis=1).astype(np.float32)


def continuous_next_state(s: Array, a: Array) -> Array:
    for d in range(a.shape[1]):
        s = next_state(s, np.floor((a[:, d].astype(np.float64) + 1) * 8).astype(np.int64))
    return s


def given_noise(row: int, usable: int) -> Array:
    t = 1.0 + (7 * row + 11 * np.arange(usable)) % 13
    return t / t.sum()


@dataclass
class TableWorld:
    """A model of the table world.

    Args:
        num_actions: A, or D where ``continuous``.
        num_codes: C > 0 makes every action lead to an afterstate first.
        horizon: > 0: rewards are differences of value prefixes, restarting at depths that it divides.
        scale: factor of values and rewards, per state, for tests with wild neighbours.
    """

    num_actions: int
    num_codes: int = 0
    horizon: int = 0
    continuous: bool = False
    zero_root_value: bool = False
    as_torch: bool = False
    calls: list[tuple[Array, Array, Array]] = field(default_factory=list)

    @property
    def num_policy_params(self) -> int:
        return 2 * self.num_actions if self.continuous else max(self.num_actions, self.num_codes)

    def policy(self, s: Array) -> Array:
        if self.continuous:
            return gaussian(s, self.num_actions)
        return policy(s, self.num_policy_params)

    def roots(self, states: Array) -> RootOutput:
        s = np.asarray(states, np.int64)
        v = np.zeros(len(s), np.float32) if self.zero_root_value else value(s)
        return RootOutput(self._out(self.policy(s)), self._out(v), {"s": s})

    def node_store(self, root: RootOutput, num_simulations: int) -> TableStore:
        return TableStore(self, root, num_simulations)

    def _out(self, x: Array) -> Any:
        if not self.as_torch:
            return x
        import torch

        return torch.from_numpy(x)


class TableStore:
    """Node store of one search."""

    def __init__(self, world: TableWorld, root: RootOutput, num_simulations: int) -> None:
        s = root.state["s"]
        self.world = world
        self.state = np.zeros((num_simulations + 1, len(s)), np.int64)
        self.depth = np.zeros((num_simulations + 1, len(s)), np.int64)
        self.chance = np.zeros((num_simulations + 1, len(s)), np.bool_)
        self.prefix = np.zeros((num_simulations + 1, len(s)), np.float32)
        self.state[0] = s
        self.rows = np.arange(len(s))

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        world, rows = self.world, self.rows
        s = self.state[parent, rows]
        was_chance = self.chance[parent, rows]
        world.calls.append((was_chance.copy(), parent.copy(), action.copy()))
        if world.continuous:
            t = continuous_next_state(s, action)
        else:
            a = action[:, 0].astype(np.int64)
            t = next_state(s, a)
            if world.num_codes:
                t = np.where(was_chance, after_chance(s, a), afterstate(s, a))
        chance = (~was_chance) if world.num_codes else np.zeros(len(s), np.bool_)
        self.state[node] = t
        self.depth[node] = self.depth[parent, rows] + 1
        self.chance[node] = chance
        r = reward(t)
        if world.horizon:
            self.prefix[node] = value_prefix(t)
            restarted = self.depth[parent, rows] % world.horizon == 0
            restarted &= self.depth[parent, rows] > 0
            r = self.prefix[node] - np.where(restarted, np.float32(0), self.prefix[parent, rows])
        v, p = value(t), world.policy(t)
        flags = None
        if world.num_codes:
            r = np.where(chance, np.float32(0), r)
            v = np.where(chance, afterstate_value(t), v)
            p[chance, : world.num_codes] = chance_logits(t, world.num_codes)[chance]
            flags = world._out(chance)
        out = world._out
        return StepOutput(out(r), out(p), out(v), {"s": t}, flags)
