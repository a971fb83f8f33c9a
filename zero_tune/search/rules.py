"""Which slot of a decision node is visited next: PUCT, or the Gumbel rule.

PUCT: MuZero (Schrittwieser et al. 2020), appendix B, with the mean-Q estimate of unvisited actions and
the soft minimum of the value range from EfficientZero (Ye et al. 2021). Gumbel: Danihelka et al. 2022.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from zero_tune.ops.jit import compiled
from zero_tune.search.tree import (
    EDGE_VISITS,
    HIGH,
    LOGIT,
    LOW,
    MINIMUM,
    NUM_VISITED,
    PARENT_MEAN,
    PRIOR,
    RAW_VALUE,
    ROOT,
    SHARE,
    VALUE_SUM,
    VISITS,
    ZERO,
    Q,
    considered,
    edge_floats,
    edge_ints,
    exploration,
    gumbels,
    limits,
    node_floats,
    node_ints,
    q_sums,
)
from zero_tune.types import Array


@compiled
def _extremes(run: Any, b: int, node: int) -> tuple[Any, Any]:
    """Least and largest of the visited slots' Q and the node's own value."""
    edge_f, edge_i = edge_floats(run), edge_ints(run)
    visits = np.float32(node_ints(run)[b, node, VISITS])
    low = node_floats(run)[b, node, VALUE_SUM] / visits
    high = low
    for k in range(run.num_slots):
        if edge_i[b, node, EDGE_VISITS, k] > 0:
            low = min(low, edge_f[b, node, Q, k])
            high = max(high, edge_f[b, node, Q, k])
    return low, high


@compiled
def mean_q(run: Any, b: int, node: int, inherited: float) -> Any:
    """EfficientZero's estimate of an unvisited slot's Q: the mean of the visited ones and ``inherited``.

    Args:
        inherited: the parent's estimate from this node's mover's view; it does not count at a root that
            has visited slots.
    """
    total, count = np.float32(q_sums(run)[b, node]), node_ints(run)[b, node, NUM_VISITED]
    if node == 0 and count > 0:
        return total / np.float32(count)
    return (inherited + total) / np.float32(count + 1)


@compiled
def puct_slot(run: Any, b: int, node: int, inherited: float) -> tuple[int, Any]:
    """The slot with the largest score (the first of equals, -1 for none), and the mean-Q estimate.

    score = clip((Q - low) / max(high - low, value_delta_max), 0, 1) + P sqrt(n) c(n) / (1 + N), with n
    the node's visits (less its own, if that is not to count). Written without branches: which slots are
    visited is what a branch predictor cannot know.
    """
    edge_f, edge_i, node_i = edge_floats(run), edge_ints(run), node_ints(run)
    estimate = mean_q(run, b, node, inherited)
    unvisited = estimate
    low, high = limits(run)[b, LOW], limits(run)[b, HIGH]
    if run.node_range or run.unvisited_q != PARENT_MEAN:
        least, largest = _extremes(run, b, node)
        if run.node_range:
            low, high = least, largest
        if run.unvisited_q == MINIMUM:
            unvisited = least
        elif run.unvisited_q == ZERO:
            unvisited = np.float32(0.0)
    scale = np.float32(0.0)  # without a range the prior decides
    if high > low:
        scale = np.float32(1.0) / max(high - low, run.value_delta_max)
    explore = exploration(run)[node_i[b, node, VISITS] - 1 + run.own_visit]
    best, slot = np.float32(-np.inf), -1
    for k in range(run.num_slots):
        q = edge_f[b, node, Q, k]
        q = q if edge_i[b, node, EDGE_VISITS, k] > 0 else unvisited
        q = (q - low) * scale
        q = q if q > 0.0 else np.float32(0.0)
        q = q if q < 1.0 else np.float32(1.0)
        score = q + explore * edge_f[b, node, SHARE, k]
        slot = k if score > best else slot
        best = score if score > best else best
    return slot, estimate


@lru_cache(maxsize=64)
def considered_visits(num_considered: int, num_simulations: int) -> Array:
    """Table [m + 1, S] int32: row c says which visit count is due when c actions are considered.

    Sequential halving: every phase visits the surviving actions equally often, then halves them.
    """
    table = np.zeros((num_considered + 1, num_simulations), np.int32)
    for count in range(num_considered + 1):
        table[count] = _halving_sequence(count, num_simulations)
    return table


def _halving_sequence(considered: int, num_simulations: int) -> list[int]:
    if considered <= 1:
        return list(range(num_simulations))
    phases = math.ceil(math.log2(considered))
    visits = [0] * considered
    alive = considered
    sequence: list[int] = []
    while len(sequence) < num_simulations:
        rounds = max(1, num_simulations // (phases * alive))
        for _ in range(rounds):
            sequence += visits[:alive]
            visits[:alive] = [v + 1 for v in visits[:alive]]
        alive = max(2, alive // 2)
    return sequence[:num_simulations]


@compiled
def completed_q(run: Any, b: int, node: int) -> tuple[Any, Any, Any]:
    """``(v_mix, low, scale)``: sigma(q) = scale (q - low), with v_mix as q of unvisited slots.

    v_mix = (v + n sum_visited(P Q) / sum_visited(P)) / (1 + n). Low and range are over the usable slots.
    """
    edge_f, edge_i = edge_floats(run), edge_ints(run)
    tiny = np.float32(1.1754944e-38)
    weighted, mass = np.float32(0.0), np.float32(0.0)
    low, high = np.float32(np.inf), np.float32(-np.inf)
    visits, most, unvisited = 0, 0, False
    for k in range(run.num_slots):
        prior = edge_f[b, node, PRIOR, k]
        if prior < 0.0:
            continue
        count = edge_i[b, node, EDGE_VISITS, k]
        if count == 0:
            unvisited = True
            continue
        prior = max(prior, tiny)
        q = edge_f[b, node, Q, k]
        weighted += prior * q
        mass += prior
        visits += count
        most = max(most, count)
        low, high = min(low, q), max(high, q)
    mixed = node_floats(run)[b, node, RAW_VALUE]
    if visits > 0:
        mixed = (mixed + np.float32(visits) * (weighted / mass)) / np.float32(1 + visits)
    if unvisited:
        low, high = min(low, mixed), max(high, mixed)
    spread = max(high - low, np.float32(1e-8))
    scale = (run.maxvisit_init + np.float32(most)) * run.value_scale / spread
    return mixed, low, scale


@compiled
def improved_logit(run: Any, b: int, node: int, k: int, completed: Any) -> float:
    """``logit + sigma(q)`` of a usable slot; ``completed`` is ``completed_q``'s result."""
    edge_f = edge_floats(run)
    mixed, low, scale = completed
    q = mixed
    if edge_ints(run)[b, node, EDGE_VISITS, k] > 0:
        q = edge_f[b, node, Q, k]
    return edge_f[b, node, LOGIT, k] + scale * (q - low)


@compiled
def best_considered(run: Any, b: int, due: int) -> int:
    """Among root slots with ``due`` visits, the argmax of gumbel + logit + sigma(q); -1 for none."""
    edge_f, edge_i, gumbel = edge_floats(run), edge_ints(run), gumbels(run)
    completed = completed_q(run, b, ROOT)
    best, slot = np.float32(-np.inf), -1
    for k in range(run.num_slots):
        if edge_f[b, 0, PRIOR, k] < 0.0 or edge_i[b, 0, EDGE_VISITS, k] != due:
            continue
        score = gumbel[b, k] + improved_logit(run, b, ROOT, k, completed)
        if score > best:
            best, slot = score, k
    return slot


@compiled
def gumbel_slot(run: Any, b: int, node: int) -> int:
    """The slot due next: sequential halving at the root; inside, the one furthest below its share.

    Inside: argmax softmax(logit + sigma(q)) - N / (1 + sum N).
    """
    edge_f, edge_i, node_i = edge_floats(run), edge_ints(run), node_ints(run)
    if node == 0:
        usable = 0
        for k in range(run.num_slots):
            if edge_f[b, 0, PRIOR, k] >= 0.0:
                usable += 1
        row = min(usable, run.table_rows - 1)
        return best_considered(run, b, considered(run)[row, node_i[b, 0, VISITS] - 1])
    completed = completed_q(run, b, node)
    top, total = np.float32(-np.inf), np.float32(0.0)
    for k in range(run.num_slots):
        if edge_f[b, node, PRIOR, k] >= 0.0:
            top = max(top, improved_logit(run, b, node, k, completed))
    for k in range(run.num_slots):
        if edge_f[b, node, PRIOR, k] >= 0.0:
            weight = math.exp(improved_logit(run, b, node, k, completed) - top)
            edge_f[b, node, SHARE, k] = weight  # free in this rule
            total += weight
    share = np.float32(1.0) / np.float32(node_i[b, node, VISITS])
    best, slot = np.float32(-np.inf), -1
    for k in range(run.num_slots):
        if edge_f[b, node, PRIOR, k] < 0.0:
            continue
        score = (
            edge_f[b, node, SHARE, k] / total - np.float32(edge_i[b, node, EDGE_VISITS, k]) * share
        )
        if score > best:
            best, slot = score, k
    return slot
