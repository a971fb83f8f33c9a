"""Optimisers with their weight-decay groups."""

from __future__ import annotations

import torch
from torch import nn

from zero_tune.config import PolicyConfig, need


def build_optimizer(model: nn.Module, policy: PolicyConfig) -> torch.optim.Optimizer:
    """SGD or Adam with decay on everything, or AdamW with decay on tensors of two or more dimensions."""
    kind = need(policy.optim_type, "policy.optim_type")
    lr = need(policy.learning_rate, "policy.learning_rate")
    decay = need(policy.weight_decay, "policy.weight_decay")
    params = [p for p in model.parameters() if p.requires_grad]
    if kind == "SGD":
        return torch.optim.SGD(
            params, lr=lr, momentum=policy.momentum, weight_decay=decay, fused=True
        )
    if kind == "Adam":
        return torch.optim.Adam(params, lr=lr, weight_decay=decay, fused=True)
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)
