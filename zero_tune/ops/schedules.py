"""Schedules as pure functions of a counter."""

from __future__ import annotations

import math

from zero_tune.config import PolicyConfig


def visit_temperature(policy: PolicyConfig, train_iter: int) -> float:
    """Temperature of the visit counts in collection.

    With ``manual_temperature_decay``: 1, then 0.5 from half of, and 0.25 from three quarters of
    ``threshold_training_steps_for_final_temperature`` on; else fixed.
    """
    if not policy.manual_temperature_decay:
        return policy.fixed_temperature_value
    share = train_iter / policy.threshold_training_steps_for_final_temperature
    return 1.0 if share < 0.5 else 0.5 if share < 0.75 else 0.25


def exploration_epsilon(policy: PolicyConfig, envstep: int) -> float:
    """Share of uniform actions in collection; 0 unless epsilon-greedy exploration is on."""
    if not policy.eps_greedy_exploration_in_collect:
        return 0.0
    start, end = policy.eps_start, policy.eps_end
    if policy.eps_type == "linear":
        return max(end, start - (start - end) * envstep / policy.eps_decay)
    return end + (start - end) * math.exp(-envstep / policy.eps_decay)


def lr_factor(policy: PolicyConfig, train_iter: int) -> float:
    """Factor on the learning rate for update ``train_iter`` (counted from 0)."""
    factor = 1.0
    if policy.piecewise_decay_lr_scheduler:
        last = policy.threshold_training_steps_for_final_lr
        factor = 1.0 if train_iter < 0.5 * last else 0.1 if train_iter < last else 0.01
    elif policy.cos_lr_scheduler:
        share = min(1.0, train_iter / policy.lr_total_steps)
        factor = 0.5 * (1.0 + math.cos(math.pi * share))
    if policy.lr_warmup_steps:
        factor *= min(1.0, (train_iter + 1) / policy.lr_warmup_steps)
    return factor


def linear(start: float, end: float, step: int, steps: int) -> float:
    """From ``start`` to ``end`` over ``steps``, constant after."""
    share = min(1.0, step / steps)
    return start + (end - start) * share
