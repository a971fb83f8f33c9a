"""Policy distributions: masked categorical and tanh-squashed diagonal Gaussian."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Actions are clamped this far inside (-1, 1) before the inverse tanh.
ACTION_EDGE = 1e-6


def masked_log_softmax(logits: Tensor, legal: Tensor) -> Tensor:
    """Log-probabilities over legal entries; illegal ones get a large negative finite number.

    Rows without any legal entry give the unmasked distribution, so that no NaN can arise where a mask
    removes the row from the loss anyway.
    """
    usable = legal | ~legal.any(-1, keepdim=True)
    return torch.log_softmax(logits.masked_fill(~usable, -1e9), -1)


def split_gaussian(policy: Tensor) -> tuple[Tensor, Tensor]:
    """(mu, sigma), each [..., D], from policy parameters [..., 2D]."""
    mu, sigma = policy.chunk(2, -1)
    return mu, sigma


def squashed_gaussian_log_prob(policy: Tensor, action: Tensor) -> Tensor:
    """Log density of ``action = tanh(u)``, ``u ~ N(mu, sigma)``, summed over dimensions.

    Args:
        policy: [..., 2D] (mu, sigma).
        action: [..., D] in [-1, 1].
    """
    mu, sigma = split_gaussian(policy)
    action = action.clamp(-1.0 + ACTION_EDGE, 1.0 - ACTION_EDGE)
    u = torch.atanh(action)
    normal = -0.5 * ((u - mu) / sigma) ** 2 - torch.log(sigma) - 0.5 * math.log(2.0 * math.pi)
    return (normal - torch.log(1.0 - action**2 + 1e-6)).sum(-1)


def gaussian_entropy(policy: Tensor) -> Tensor:
    """Entropy in nats of the Gaussian before squashing, summed over dimensions."""
    _, sigma = split_gaussian(policy)
    return (torch.log(sigma) + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1)


def categorical_entropy(log_prob: Tensor) -> Tensor:
    """Entropy in nats from log-probabilities, finite also where a probability underflows."""
    return -(log_prob.exp() * log_prob.clamp(min=-1e4)).sum(-1)
