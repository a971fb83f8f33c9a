"""Compiled steps of one search: prepare the roots, then expand, back up and select per simulation.

One code for every policy type: a node's slots are actions or, at a chance node, codes. Arithmetic is
float32 in a fixed order, hence the same inputs give the same visits, whatever the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.ops.jit import compiled, entry_point
from zero_tune.search.draws import gumbel, log_gamma_deviate, uniform
from zero_tune.search.proposal import propose
from zero_tune.search.rules import gumbel_slot, mean_q, puct_slot
from zero_tune.search.tree import (
    CHANCE,
    CHILD,
    CONTINUOUS,
    DISCRETE,
    EDGE_VISITS,
    HIGH,
    LOGIT,
    LOW,
    NUM_VISITED,
    PARENT,
    PRIOR,
    RAW_VALUE,
    REWARD,
    SHARE,
    SLOT,
    VALUE_SUM,
    VISITS,
    Q,
    continuous_candidates,
    discrete_candidates,
    edge_floats,
    edge_ints,
    generators,
    gumbels,
    leaf_actions,
    leaf_parents,
    leaf_vectors,
    limits,
    node_floats,
    node_ints,
    q_sums,
    root_noise,
    sign,
)

#: What a step returns: 0, that the outputs do not fit the trees, or which number was not finite.
OK, BAD_SHAPE, BAD_POLICY, BAD_VALUE, BAD_REWARD, NO_SLOT = range(6)
ERRORS = {
    BAD_POLICY: "search/policy",
    BAD_VALUE: "search/value",
    BAD_REWARD: "search/reward",
    NO_SLOT: "search/score",
}


@compiled
def _open_node(run: Any, b: int, node: int, width: int, reward: float, value: float) -> int:
    """Reset a node whose PRIOR row holds logits: probabilities, no visits, the network's numbers."""
    if not np.isfinite(value):
        return BAD_VALUE
    if not np.isfinite(reward):
        return BAD_REWARD
    edge_f, edge_i = edge_floats(run), edge_ints(run)
    node_f, node_i = node_floats(run), node_ints(run)
    top = np.float32(-np.inf)
    for k in range(width):
        logit = edge_f[b, node, PRIOR, k]
        if not (logit < np.inf):
            return BAD_POLICY
        top = logit if logit > top else top
    if top == -np.inf:
        return BAD_POLICY
    total = np.float32(0.0)
    for k in range(width):
        logit = edge_f[b, node, PRIOR, k]
        weight = math.exp(logit - top)
        total += weight
        edge_f[b, node, LOGIT, k] = logit
        edge_f[b, node, PRIOR, k] = weight
        edge_f[b, node, Q, k] = 0.0
        edge_i[b, node, EDGE_VISITS, k] = 0
        edge_i[b, node, CHILD, k] = -1
    for k in range(width):
        prior = edge_f[b, node, PRIOR, k] / total
        usable = edge_f[b, node, LOGIT, k] > -np.inf
        edge_f[b, node, PRIOR, k] = prior if usable else np.float32(-1.0)
        edge_f[b, node, SHARE, k] = prior if usable else np.float32(-np.inf)
    node_f[b, node, VALUE_SUM] = 0.0
    node_f[b, node, REWARD] = reward
    node_f[b, node, RAW_VALUE] = value
    node_i[b, node, VISITS] = 0
    node_i[b, node, NUM_VISITED] = 0
    q_sums(run)[b, node] = 0.0
    return OK


@compiled
def _mix_noise(run: Any, b: int) -> None:
    """Mix Dirichlet noise into the root's prior over its usable slots."""
    edge_f, rng = edge_floats(run), generators(run)
    top = np.float32(-np.inf)
    for k in range(run.num_slots):  # the Q row is free until the first backup
        if edge_f[b, 0, PRIOR, k] >= 0.0:
            if run.noise_given:
                edge_f[b, 0, Q, k] = math.log(root_noise(run)[b, k])
            else:
                edge_f[b, 0, Q, k] = log_gamma_deviate(rng, b, run.noise_alpha)
            top = max(top, edge_f[b, 0, Q, k])
    total = np.float32(0.0)
    for k in range(run.num_slots):
        if edge_f[b, 0, PRIOR, k] >= 0.0:
            edge_f[b, 0, Q, k] = math.exp(edge_f[b, 0, Q, k] - top)
            total += edge_f[b, 0, Q, k]
    for k in range(run.num_slots):
        if edge_f[b, 0, PRIOR, k] >= 0.0:
            noise = run.noise_weight * (edge_f[b, 0, Q, k] / total)
            prior = (np.float32(1.0) - run.noise_weight) * edge_f[b, 0, PRIOR, k] + noise
            edge_f[b, 0, PRIOR, k] = prior
            edge_f[b, 0, SHARE, k] = prior
        edge_f[b, 0, Q, k] = 0.0


@compiled
def _explore_root(run: Any, b: int) -> None:
    """The root's own randomness, and its first visit: the network's value."""
    if run.table_rows == 0 and run.noise_weight > 0.0:
        _mix_noise(run, b)
    if run.table_rows > 0 and not run.gumbel_given:
        rng = generators(run)
        for k in range(run.num_slots):
            noise = run.gumbel_scale * gumbel(uniform(rng, b)) if run.gumbel_scale > 0.0 else 0.0
            gumbels(run)[b, k] = noise
    node_floats(run)[b, 0, VALUE_SUM] = node_floats(run)[b, 0, RAW_VALUE]
    node_ints(run)[b, 0, VISITS] = 1
    node_ints(run)[b, 0, PARENT] = -1
    limits(run)[b, LOW], limits(run)[b, HIGH] = np.inf, -np.inf


@compiled
def _back_up(run: Any, b: int, leaf: int) -> None:
    """Add the leaf's value to every node on its path, each from its own mover's view.

    A return is worth reward + discount * return one edge further up, with minus for two players. An
    edge into a chance node has factor 1: no time passes there, and an afterstate is valued from the
    view of the player who just moved.
    """
    edge_f, edge_i = edge_floats(run), edge_ints(run)
    node_f, node_i = node_floats(run), node_ints(run)
    bounds = limits(run)
    factor = sign(run, b) * run.discount
    node = np.int64(leaf)
    gain = node_f[b, node, RAW_VALUE]
    low, high = bounds[b, LOW], bounds[b, HIGH]
    while True:
        value_sum = node_f[b, node, VALUE_SUM] + gain
        visits = node_i[b, node, VISITS] + 1
        node_f[b, node, VALUE_SUM] = value_sum
        node_i[b, node, VISITS] = visits
        edge_factor = np.float32(1.0) if node_i[b, node, CHANCE] == 1 else factor
        reward = node_f[b, node, REWARD]
        q = reward + edge_factor * (value_sum / np.float32(visits))
        low = q if q < low else low
        high = q if q > high else high
        parent = np.int64(node_i[b, node, PARENT])
        if parent < 0:
            break
        slot = np.int64(node_i[b, node, SLOT])
        edge_visits = edge_i[b, parent, EDGE_VISITS, slot] + 1
        edge_i[b, parent, EDGE_VISITS, slot] = edge_visits
        node_i[b, parent, NUM_VISITED] += 1 if edge_visits == 1 else 0
        q_sums(run)[b, parent] += np.float64(q) - np.float64(edge_f[b, parent, Q, slot])
        edge_f[b, parent, Q, slot] = q
        edge_f[b, parent, SHARE, slot] = edge_f[b, parent, PRIOR, slot] / np.float32(
            1 + edge_visits
        )
        gain = reward + edge_factor * gain
        node = parent
    bounds[b, LOW], bounds[b, HIGH] = low, high


@compiled
def _code_slot(run: Any, b: int, node: int) -> int:
    """A chance node's next code: argmax p / (n + 1) (mctx), or a draw from p."""
    edge_f = edge_floats(run)
    if run.sample_code:
        left = uniform(generators(run), b)
        for k in range(run.num_codes):
            left -= edge_f[b, node, PRIOR, k]
            if left < 0.0:
                return k
    best, slot = np.float32(-np.inf), -1
    for k in range(run.num_codes):
        if edge_f[b, node, SHARE, k] > best:
            best, slot = edge_f[b, node, SHARE, k], k
    return slot


@compiled
def _select(run: Any, b: int, leaf: int) -> int:
    """Walk from the root to an unexpanded slot and make it node ``leaf``."""
    edge_i, node_i = edge_ints(run), node_ints(run)
    flip = sign(run, b)
    node = np.int64(0)
    inherited = np.float32(0.0)
    while True:
        chance = node_i[b, node, CHANCE] == 1
        if chance:
            slot = _code_slot(run, b, node)
            inherited = mean_q(run, b, node, inherited)
        elif run.table_rows == 0:
            slot, inherited = puct_slot(run, b, node, inherited)
        else:
            slot = gumbel_slot(run, b, node)
        if slot < 0:
            return NO_SLOT
        child = edge_i[b, node, CHILD, slot]
        if child < 0:
            break
        node = np.int64(child)
        inherited *= np.float32(1.0) if node_i[b, node, CHANCE] == 1 else flip
    edge_i[b, node, CHILD, slot] = leaf
    node_i[b, leaf, PARENT] = node
    node_i[b, leaf, SLOT] = slot
    leaf_parents(run)[leaf - 1, b] = node
    if run.candidate_kind == CONTINUOUS:
        for d in range(run.dim):
            leaf_vectors(run)[leaf - 1, b, d] = continuous_candidates(run)[b, node, slot, d]
    elif run.candidate_kind == DISCRETE and not chance:
        leaf_actions(run)[leaf - 1, b, 0] = discrete_candidates(run)[b, node, slot, 0]
    else:
        leaf_actions(run)[leaf - 1, b, 0] = slot
    return OK


@entry_point
def step(record: Any, node: int, reward: Any, policy: Any, value: Any, is_chance: Any) -> int:
    """Expand ``node`` of every tree with the network's output, back it up, select the next leaf.

    Args:
        record: [1] `tree.RUN`.
        node: 0 for the roots, then 1..S; after the last one nothing is selected.
        reward: [B] f32 on entering the node, 0 for the roots.
        policy: [B, P] f32.
        value: [B] f32.
        is_chance: [B] bool, or [0] where no node ever is.

    Returns:
        ``OK``, or what was wrong.
    """
    run = record[0]
    if not (len(reward) == len(policy) == len(value) == run.rows):
        return BAD_SHAPE
    if policy.shape[1] != run.num_params or len(is_chance) not in (0, run.rows):
        return BAD_SHAPE
    for b in range(run.rows):
        chance = len(is_chance) > 0 and is_chance[b]
        width = run.num_codes if chance else run.num_slots
        propose(run, b, node, policy, chance)
        status = _open_node(run, b, node, width, reward[b], value[b])
        if status != OK:
            return status
        node_ints(run)[b, node, CHANCE] = 1 if chance else 0
        if node == 0:
            _explore_root(run, b)
        else:
            _back_up(run, b, node)
        if node + 1 < run.nodes:
            status = _select(run, b, node + 1)
            if status != OK:
                return status
    return OK
