"""Slow, readable tree searches for one root, written from the papers and not from the package.

Nodes are objects, selection is a loop over a list, values are Python floats. The switches named
``lightzero_*`` reproduce that project's departures, so that its golden figures can vouch for the rest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What a model says of one edge."""

    reward: float
    value: float
    policy: Sequence[float]
    state: Any
    is_chance: bool = False


#: (state, action) -> Step
Model = Callable[[Any, Any], Step]
#: policy parameters -> (actions, prior logits) of an inner node
Proposal = Callable[[Sequence[float]], tuple[list[Any], list[float]]]


@dataclass
class Settings:
    num_simulations: int
    discount: float = 0.997
    two_players: bool = False
    unvisited_q: str = "parent_mean"
    node_range: bool = False
    count_own_visit: bool = True
    value_delta_max: float = 0.01
    pb_c_base: float = 19652
    pb_c_init: float = 1.25
    num_codes: int = 0
    maxvisit_init: float = 50
    value_scale: float = 0.1
    lightzero_mean_signs: bool = False  # q-bar is r + discount V for two players too
    lightzero_double_discount: bool = False  # discount on the edge into a chance node as well


@dataclass
class Node:
    actions: list[Any]
    prior: list[float]
    logits: list[float]
    state: Any
    reward: float = 0.0
    raw_value: float = 0.0
    is_chance: bool = False
    visits: int = 0
    value_sum: float = 0.0
    children: dict[int, Node] = field(default_factory=dict)
    number: int = 0
    tracked_reward: float | None = None  # what the min-max tracker sees, if not the reward

    @property
    def value(self) -> float:
        return self.value_sum / self.visits


@dataclass
class Result:
    visits: list[int]
    value: float
    q: list[float | None]
    trace: list[tuple[int, Any, int]]  # parent node, action, depth of the leaf, per simulation
    action_slot: int
    weights: list[float]
    root: Node


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    return [w / sum(weights) for w in weights]


class TreeSearch(ABC):
    """Common to both rules: expansion, backup, the min-max range, chance nodes."""

    def __init__(self, settings: Settings, model: Model, proposal: Proposal) -> None:
        self.settings, self.model, self.proposal = settings, model, proposal
        self.low, self.high = math.inf, -math.inf

    def factor(self, child: Node) -> float:
        """Worth of the child's value on the edge into it, from the parent's mover's view."""
        s = self.settings
        if child.is_chance:
            return s.discount if s.lightzero_double_discount else 1.0
        return -s.discount if s.two_players else s.discount

    def q(self, child: Node) -> float:
        return child.reward + self.factor(child) * child.value

    def make_root(self, actions: list[Any], logits: list[float], value: float, state: Any) -> Node:
        root = Node(actions, softmax(logits), logits, state, raw_value=value)
        root.visits, root.value_sum = 1, value
        return root

    def expand(self, parent: Node, slot: int, number: int) -> Node:
        step = self.model(parent.state, parent.actions[slot])
        if step.is_chance:
            codes = list(range(self.settings.num_codes))
            actions, logits = codes, list(step.policy)[: len(codes)]
        else:
            actions, logits = self.proposal(step.policy)
        node = Node(actions, softmax(logits), logits, step.state, step.reward, step.value)
        node.is_chance, node.number = step.is_chance, number
        parent.children[slot] = node
        return node

    def run(self, root: Node) -> Result:
        trace = []
        for number in range(1, self.settings.num_simulations + 1):
            path = [root]
            inherited = 0.0
            while True:
                node = path[-1]
                if node.is_chance:
                    visited = [self.q(child) for child in node.children.values()]
                    inherited = (inherited + sum(visited)) / (len(visited) + 1)
                    slot = self.code(node)
                else:
                    slot, inherited = self.select(node, inherited, node is root)
                if slot not in node.children:
                    break
                path.append(node.children[slot])
                flips = self.settings.two_players and not path[-1].is_chance
                if flips and not self.settings.lightzero_mean_signs:
                    inherited = -inherited
            trace.append((node.number, node.actions[slot], len(path)))
            path.append(self.expand(node, slot, number))
            self.back_up(path)
        return self.result(root, trace)

    def back_up(self, path: list[Node]) -> None:
        gain = path[-1].raw_value
        for node in reversed(path):
            node.visits += 1
            node.value_sum += gain
            reward = node.reward if node.tracked_reward is None else node.tracked_reward
            tracked = reward + self.factor(node) * node.value
            self.low, self.high = min(self.low, tracked), max(self.high, tracked)
            gain = node.reward + self.factor(node) * gain

    def code(self, node: Node) -> int:
        def score(k: int) -> float:
            child = node.children.get(k)
            return node.prior[k] / (1 + (child.visits if child else 0))

        return max(range(len(node.actions)), key=score)

    @abstractmethod
    def select(self, node: Node, inherited: float, is_root: bool) -> tuple[int, float]: ...

    def result(self, root: Node, trace: list[tuple[int, Any, int]]) -> Result:
        slots = range(len(root.actions))
        visits = [root.children[k].visits if k in root.children else 0 for k in slots]
        q = [self.q(root.children[k]) if k in root.children else None for k in slots]
        slot, weights = self.decide(root, visits)
        return Result(visits, root.value, q, trace, slot, weights, root)

    def decide(self, root: Node, visits: list[int]) -> tuple[int, list[float]]:
        return visits.index(max(visits)), [v / sum(visits) for v in visits]


class Puct(TreeSearch):
    def select(self, node: Node, inherited: float, is_root: bool) -> tuple[int, float]:
        s = self.settings
        visited = [self.q(child) for child in node.children.values()]
        estimates = visited
        if s.lightzero_mean_signs:
            estimates = [c.reward + s.discount * c.value for c in node.children.values()]
        if is_root and estimates:
            mean_q = sum(estimates) / len(estimates)
        else:
            mean_q = (inherited + sum(estimates)) / (len(estimates) + 1)
        unvisited = {
            "parent_mean": mean_q,
            "min": min([node.value, *visited]),
            "zero": 0.0,
        }[s.unvisited_q]
        low, high = self.low, self.high
        if s.node_range:
            low, high = min([node.value, *visited]), max([node.value, *visited])
        n = node.visits if s.count_own_visit else node.visits - 1
        c = math.log((n + s.pb_c_base + 1) / s.pb_c_base) + s.pb_c_init
        best, slot = -math.inf, -1
        for k in range(len(node.actions)):
            child = node.children.get(k)
            q = self.q(child) if child else unvisited
            score = 0.0
            if high > low:
                score = min(max((q - low) / max(high - low, s.value_delta_max), 0.0), 1.0)
            score += node.prior[k] * math.sqrt(n) * c / (1 + (child.visits if child else 0))
            if score > best:
                best, slot = score, k
        return slot, mean_q


class Gumbel(TreeSearch):
    """Sequential halving at the root, the completed-Q rule inside (Danihelka et al. 2022)."""

    def __init__(
        self,
        settings: Settings,
        model: Model,
        proposal: Proposal,
        gumbel: Sequence[float],
        max_considered: int,
    ) -> None:
        super().__init__(settings, model, proposal)
        self.gumbel = gumbel
        considered = min(max_considered, len(gumbel))
        self.due = halving_sequence(considered, settings.num_simulations)

    def sigma(self, node: Node) -> list[float]:
        s = self.settings
        visits = {k: child.visits for k, child in node.children.items()}
        q = {k: self.q(child) for k, child in node.children.items()}
        mixed = node.raw_value
        if q:
            mean = sum(node.prior[k] * q[k] for k in q) / sum(node.prior[k] for k in q)
            mixed = (node.raw_value + sum(visits.values()) * mean) / (1 + sum(visits.values()))
        completed = [q.get(k, mixed) for k in range(len(node.actions))]
        low, high = min(completed), max(completed)
        scale = (s.maxvisit_init + max(visits.values(), default=0)) * s.value_scale
        return [scale * (x - low) / max(high - low, 1e-8) for x in completed]

    def improved(self, node: Node) -> list[float]:
        return [a + b for a, b in zip(node.logits, self.sigma(node), strict=True)]

    def root_choice(self, root: Node, due: int) -> int:
        scores = {
            k: self.gumbel[k] + logit
            for k, logit in enumerate(self.improved(root))
            if (root.children[k].visits if k in root.children else 0) == due
        }
        return max(scores, key=lambda k: scores[k])

    def select(self, node: Node, inherited: float, is_root: bool) -> tuple[int, float]:
        if is_root:
            return self.root_choice(node, self.due[node.visits - 1]), 0.0
        target = softmax(self.improved(node))
        total = sum(child.visits for child in node.children.values())

        def lag(k: int) -> float:
            child = node.children.get(k)
            return target[k] - (child.visits if child else 0) / (1 + total)

        return max(range(len(node.actions)), key=lag), 0.0

    def decide(self, root: Node, visits: list[int]) -> tuple[int, list[float]]:
        return self.root_choice(root, max(visits)), softmax(self.improved(root))


def halving_sequence(considered: int, simulations: int) -> list[int]:
    """Visit count due at each simulation; a direct simulation of sequential halving."""
    if considered <= 1:
        return list(range(simulations))
    rounds = math.ceil(math.log2(considered))
    sequence: list[int] = []
    done = 0  # visits every surviving action has
    alive = considered
    while len(sequence) < simulations:
        for _ in range(max(1, simulations // (rounds * alive))):
            sequence += [done] * alive
            done += 1
        alive = max(2, alive // 2)
    return sequence[:simulations]
