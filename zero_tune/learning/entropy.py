"""Learned entropy weight (UniZero): keeps the policy's entropy near a falling target."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from zero_tune.config import PolicyConfig
from zero_tune.ops.schedules import linear


class AdaptiveEntropy:
    """``log_alpha`` follows ``alpha * (H - H_target)``; ``alpha`` replaces the fixed weight."""

    def __init__(self, policy: PolicyConfig, num_actions: int) -> None:
        self._policy, self._most = policy, math.log(num_actions)
        start = math.log(max(1e-4, policy.policy_entropy_weight or 1e-4))
        self.log_alpha = torch.tensor(start, requires_grad=True)
        self._optimizer = torch.optim.Adam([self.log_alpha], lr=policy.adaptive_entropy_lr)

    @property
    def alpha(self) -> float:
        """The weight now, within [1e-4, 10]."""
        return float(self.log_alpha.detach().exp().clamp(1e-4, 10.0))

    def update(self, entropy: Tensor, train_iter: int) -> None:
        """One step from the batch's mean entropy."""
        policy = self._policy
        ratio = linear(
            policy.target_entropy_start_ratio,
            policy.target_entropy_end_ratio,
            train_iter,
            policy.target_entropy_decay_steps,
        )
        self._optimizer.zero_grad()
        (self.log_alpha * (entropy.detach().cpu() - ratio * self._most)).backward()
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Weight and optimiser state."""
        return {
            "log_alpha": self.log_alpha.detach().clone(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
        self._optimizer.load_state_dict(state["optimizer"])
