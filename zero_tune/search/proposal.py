"""Which K actions a node considers: all of them, or K drawn from the policy.

Sampled MuZero (Hubert et al. 2021): actions drawn from beta get the prior beta_hat / beta * pi. With
beta = pi and independent draws that is 1 / K. Discrete draws are without replacement, so pi itself,
renormalised over the draws, is the prior there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zero_tune.ops.elementary import exp_below
from zero_tune.ops.jit import compiled
from zero_tune.search.draws import gumbel, normal_pair, uniform
from zero_tune.search.tree import (
    DISCRETE,
    ENUMERATED,
    PRIOR,
    continuous_candidates,
    discrete_candidates,
    edge_floats,
    generators,
    given_draws,
    root_legal,
    scratch,
)

#: Sampled actions stay this far inside (-1, 1), so that their log-density is finite.
EDGE = 1e-6
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)
_MAX_GAP = 60.0  # largest log-ratio of a uniform draw's density to the policy's
_TINY = np.float32(1e-30)  # mass of an action whose probability underflows


@compiled
def propose(run: Any, b: int, node: int, policy: Any, chance: bool) -> None:
    """Write a fresh node's prior logits, and its actions where they are sampled.

    -inf marks a slot that cannot be chosen: illegal at the root, or unused because there are fewer legal
    actions than slots. Inside the tree every action is legal. NaN reports a policy that is not finite.

    Args:
        policy: [B, P] network output: logits, or [mu, sigma] of a squashed Gaussian.
    """
    logits = edge_floats(run)[b, node, PRIOR]
    if chance:
        for k in range(run.num_codes):
            logits[k] = policy[b, k]
    elif run.candidate_kind == ENUMERATED:
        legal = root_legal(run)
        for k in range(run.num_slots):
            logits[k] = policy[b, k] if node > 0 or legal[b, k] else np.float32(-np.inf)
    elif run.candidate_kind == DISCRETE:
        _draw_discrete(run, b, node, policy[b], discrete_candidates(run)[b, node], logits)
    else:
        _draw_continuous(run, b, node, policy[b], continuous_candidates(run)[b, node], logits)
    if run.candidate_kind != ENUMERATED and not chance:
        faults = 0
        for i in range(policy.shape[1]):
            faults += 0 if abs(policy[b, i]) < np.inf else 1
        if faults > 0:
            logits[0] = np.nan


@compiled
def _draw_discrete(run: Any, b: int, node: int, policy: Any, actions: Any, logits: Any) -> None:
    """K actions without replacement in proportion to the policy; all legal ones if no more than K."""
    legal, mass = root_legal(run), scratch(run)[0]
    num_legal = run.num_actions
    for a in range(run.num_actions):
        mass[a] = policy[a]
    if node == 0:
        for a in range(run.num_actions):
            if not legal[b, a]:
                mass[a] = -np.inf
                num_legal -= 1
    used = min(run.num_slots, num_legal)
    if run.num_draws > 0:
        _race(mass, given_draws(run), actions[:used])
    elif num_legal <= run.num_slots:
        k = 0
        for a in range(run.num_actions):
            if node > 0 or legal[b, a]:
                actions[k, 0] = a
                k += 1
    else:
        top = np.float32(-np.inf)
        for a in range(run.num_actions):
            top = mass[a] if mass[a] > top else top
        for a in range(run.num_actions):
            weight = exp_below(mass[a] - top) + _TINY
            mass[a] = weight if mass[a] > -np.inf else np.float32(0.0)
        _successive(mass, scratch(run)[1], generators(run), b, actions)
    for k in range(run.num_slots):
        logits[k] = -np.inf
        if k >= used:
            actions[k, 0] = 0
        elif run.uniform_prior:
            logits[k] = 0.0
        else:
            logits[k] = policy[actions[k, 0]]


@compiled
def _successive(mass: Any, sums: Any, rng: Any, b: int, actions: Any) -> None:
    """Draw ``len(actions)`` indices one after another in proportion to ``mass``, without replacement.

    A draw from the totals as they were before others were taken, unless it hits one of those, is a draw from
    what is left: so the totals are added up anew after such a hit only. Masses that are not finite end the
    drawing; the caller reports them.
    """
    _running_total(mass, sums)
    size, k = len(mass), 0
    actions[:, 0] = 0
    while k < len(actions) and sums[size - 1] < np.inf:
        target = np.float32(uniform(rng, b)) * sums[size - 1]
        chosen = np.int32(0)
        for a in range(size):  # no early end: it is vectorised
            chosen += np.int32(1) if sums[a] <= target else np.int32(0)
        if chosen < size and mass[chosen] > 0.0:  # rounding can lead past the end
            actions[k, 0] = chosen
            mass[chosen] = 0.0
            k += 1
        else:
            _running_total(mass, sums)


@compiled
def _running_total(mass: Any, sums: Any) -> None:
    total = np.float32(0.0)
    for a in range(len(mass)):
        total += mass[a]
        sums[a] = total


@compiled
def _race(keys: Any, uniforms: Any, actions: Any) -> None:
    """The same draw from given uniforms u: the largest u^(1/p) in descending order.

    log p - log(-log u) orders as u^(1/p) does, and works in logits.
    """
    for a in range(len(keys)):
        keys[a] += gumbel(uniforms[a])
    for k in range(len(actions)):
        chosen = np.argmax(keys)
        actions[k, 0] = chosen
        keys[chosen] = -np.inf


@compiled
def _draw_continuous(run: Any, b: int, node: int, policy: Any, actions: Any, logits: Any) -> None:
    """K independent squashed Gaussian actions.

    At an exploring root the last ``broad`` slots are uniform in (-1, 1)^D; the prior is then pi over the
    density of the mixture.
    """
    rng, draws = generators(run), given_draws(run)
    edge = np.float32(1.0 - EDGE)
    spare, has_spare = np.float32(0.0), False
    broad = run.broad if node == 0 else 0
    for k in range(run.num_slots):
        logits[k] = 0.0
        for d in range(run.dim):
            if k >= run.num_slots - broad:
                a: Any = np.float32(2.0 * uniform(rng, b) - 1.0)
            else:
                if run.num_draws > 0:
                    deviate = draws[k * run.dim + d]
                elif has_spare:
                    deviate, has_spare = spare, False
                else:
                    deviate, spare = normal_pair(rng, b)
                    has_spare = True
                a = _tanh(policy[d] + policy[run.dim + d] * deviate)
            actions[k, d] = min(max(a, -edge), edge)
    if broad > 0 and not run.uniform_prior:
        for k in range(run.num_slots):
            logits[k] = _mixture_logit(policy, actions[k], broad / run.num_slots)


@compiled
def _tanh(x: Any) -> Any:
    """``tanh(x)`` to 1e-7 absolute, in a quarter of the library's time."""
    return np.float32(1.0) - np.float32(2.0) / (np.float32(1.0) + math.exp(x + x))


@compiled
def _mixture_logit(policy: Any, action: Any, share: float) -> float:
    """``log(pi / ((1 - share) pi + share / 2^D))`` of one action."""
    dim = len(action)
    log_ratio = 0.0  # log of the uniform density over pi
    for d in range(dim):
        a = np.float64(action[d])
        e = (math.atanh(a) - policy[d]) / policy[dim + d]
        log_ratio += 0.5 * e * e + math.log(policy[dim + d]) + _HALF_LOG_2PI
        log_ratio += math.log(1.0 - a * a) - _LOG_2
    return -math.log(1.0 - share + share * math.exp(min(log_ratio, _MAX_GAP)))
