"""What a finished search says: target weights, root value, and the action to execute."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from zero_tune.ops.jit import compiled, entry_point
from zero_tune.search.draws import uniform
from zero_tune.search.rules import best_considered, completed_q, improved_logit
from zero_tune.search.tree import (
    EDGE_VISITS,
    PRIOR,
    ROOT,
    VALUE_SUM,
    VISITS,
    Q,
    edge_floats,
    edge_ints,
    generators,
    node_floats,
    node_ints,
)
from zero_tune.types import Array


class Readout(NamedTuple):
    """Root statistics, in the order that ``read_out`` takes them."""

    slot: Array  # [B] i32, the slot to execute
    weights: Array  # [B, K] f32
    value: Array  # [B] f32
    visit_counts: Array  # [B, K] i32
    entropy: Array  # [B] f32
    prior: Array  # [B, K] f32
    q_values: Array  # [B, K] f32


def empty_readout(rows: int, slots: int) -> Readout:
    """Fresh arrays for B trees with K root slots."""
    return Readout(
        np.empty(rows, np.int32),
        np.empty((rows, slots), np.float32),
        np.empty(rows, np.float32),
        np.empty((rows, slots), np.int32),
        np.empty(rows, np.float32),
        np.empty((rows, slots), np.float32),
        np.empty((rows, slots), np.float32),
    )


@compiled
def visit_distribution(visits: Any, temperature: float, out: Any) -> float:
    """Fill ``out`` with N^(1/T) / sum and return its entropy in bits.

    In logs relative to the largest count, so that a small T neither overflows nor gives 0/0.
    T = 0 leaves the mass on the largest counts.
    """
    top = np.max(visits)
    total = 0.0
    for k in range(len(visits)):
        out[k] = 0.0
        if visits[k] == top:
            out[k] = 1.0
        elif visits[k] > 0 and temperature > 0.0:
            out[k] = math.exp(math.log(visits[k] / top) / temperature)
        total += out[k]
    entropy = 0.0
    for k in range(len(visits)):
        out[k] /= total
        if out[k] > 0.0:
            entropy -= out[k] * math.log2(out[k])
    return entropy


@compiled
def _draw(distribution: Any, u: float) -> int:
    """The first index where the cumulative mass exceeds ``u``."""
    last = 0
    for k in range(len(distribution)):
        if distribution[k] > 0.0:
            last = k
            u -= distribution[k]
            if u < 0.0:
                return k
    return last


@compiled
def _improved_policy(run: Any, b: int, weights: Any) -> float:
    """Fill ``weights`` with softmax(logit + sigma(q)) over usable slots; its entropy in bits."""
    edge_f = edge_floats(run)
    completed = completed_q(run, b, ROOT)
    top = np.float32(-np.inf)
    for k in range(run.num_slots):
        if edge_f[b, 0, PRIOR, k] >= 0.0:
            top = max(top, improved_logit(run, b, ROOT, k, completed))
    total = np.float32(0.0)
    for k in range(run.num_slots):
        weights[k] = 0.0
        if edge_f[b, 0, PRIOR, k] >= 0.0:
            weights[k] = math.exp(improved_logit(run, b, ROOT, k, completed) - top)
            total += weights[k]
    entropy = 0.0
    for k in range(run.num_slots):
        weights[k] /= total
        if weights[k] > 0.0:
            entropy -= weights[k] * math.log2(weights[k])
    return entropy


@entry_point
def read_out(
    record: Any,
    explore: bool,
    temperature: float,
    slot: Any,
    weights: Any,
    value: Any,
    visit_counts: Any,
    entropy: Any,
    prior: Any,
    q_values: Any,
) -> None:
    """Fill the fields of a `Readout` from the roots.

    PUCT: weights are visit shares; the action is drawn from N^(1/T) when exploring with T > 0, else it
    is the first most visited slot. Gumbel: weights are the improved policy; the action is the best of
    the most visited slots by gumbel + logit + sigma(q).
    """
    run = record[0]
    edge_f, edge_i = edge_floats(run), edge_ints(run)
    node_f, node_i = node_floats(run), node_ints(run)
    distribution = np.empty(run.num_slots)
    for b in range(run.rows):
        for k in range(run.num_slots):
            visits = edge_i[b, 0, EDGE_VISITS, k]
            visit_counts[b, k] = visits
            prior[b, k] = max(edge_f[b, 0, PRIOR, k], np.float32(0.0))
            q_values[b, k] = edge_f[b, 0, Q, k] if visits > 0 else np.float32(np.nan)
        counts = visit_counts[b]
        value[b] = node_f[b, 0, VALUE_SUM] / np.float32(node_i[b, 0, VISITS])
        if run.table_rows > 0:
            entropy[b] = _improved_policy(run, b, weights[b])
            slot[b] = best_considered(run, b, np.max(counts))
            continue
        total = np.float32(node_i[b, 0, VISITS] - 1)
        for k in range(run.num_slots):
            weights[b, k] = np.float32(counts[k]) / total
        drawn = explore and temperature > 0.0
        entropy[b] = visit_distribution(counts, temperature if drawn else 1.0, distribution)
        slot[b] = _draw(distribution, uniform(generators(run), b)) if drawn else np.argmax(counts)


@entry_point
def explore_uniformly(rng: Any, epsilon: float, legal: Any, action: Any) -> None:
    """With probability ``epsilon`` per row, replace the action by a uniform legal one, in place.

    Args:
        legal: [B, A] bool; width 0 for continuous actions, which are then uniform in (-1, 1).
        action: [B, D].
    """
    for b in range(len(action)):
        if uniform(rng, b) >= epsilon:
            continue
        if legal.shape[1] == 0:
            for d in range(action.shape[1]):
                action[b, d] = 2.0 * uniform(rng, b) - 1.0
            continue
        left = int(uniform(rng, b) * np.sum(legal[b]))
        for a in range(legal.shape[1]):
            if legal[b, a]:
                if left == 0:
                    action[b, 0] = a
                    break
                left -= 1
