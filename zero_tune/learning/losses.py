"""Loss terms: one error per sample, summed over the unroll and masked. The learner adds them up by weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zero_tune.config import PolicyConfig, need
from zero_tune.interfaces import LossTerm
from zero_tune.ops.distributions import (
    categorical_entropy,
    gaussian_entropy,
    squashed_gaussian_log_prob,
)
from zero_tune.ops.schedules import linear
from zero_tune.ops.support import Support, soft_cross_entropy
from zero_tune.types import EnvSpec, SampleBatch, UnrollOutput

Losses = dict[str, tuple[LossTerm, float]]


def action_log_prob(
    policy: Tensor, batch: SampleBatch, env: EnvSpec, *, renormalize: bool
) -> Tensor:
    """Log-probability [B, T+1, K] of each slot of the policy target."""
    actions = batch.targets.policy.actions
    if env.action.kind == "continuous":
        assert actions is not None, "a continuous policy target needs its actions"
        log_prob = squashed_gaussian_log_prob(policy.unsqueeze(-2), actions)
    else:
        log_prob = torch.log_softmax(policy[..., : env.action.size], -1)
        if actions is not None:
            log_prob = log_prob.gather(-1, actions[..., 0].long())
    return torch.log_softmax(log_prob, -1) if renormalize else log_prob


@dataclass(frozen=True)
class PolicyLoss:
    """Cross-entropy or KL from the target's weights to the policy over the same slots."""

    policy: PolicyConfig
    env: EnvSpec

    def __call__(self, output: UnrollOutput, batch: SampleBatch) -> Tensor:
        """[B]."""
        policy, targets = self.policy, batch.targets
        log_prob = action_log_prob(
            output.policy, batch, self.env, renormalize=policy.normalize_prob_of_sampled_actions
        )
        weights = self._smoothed(targets.policy.weights, batch)
        loss = -(weights * log_prob).sum(-1)
        if policy.policy_loss_type == "kl":
            loss = loss + torch.xlogy(weights, weights).sum(-1)
        return (loss * targets.policy_mask).sum(1)

    def _smoothed(self, weights: Tensor, batch: SampleBatch) -> Tensor:
        policy = self.policy
        eps = policy.policy_label_smoothing + linear(
            policy.policy_ls_eps_start,
            policy.policy_ls_eps_end,
            batch.train_iter,
            policy.policy_ls_eps_decay_steps,
        )
        if eps == 0.0 or batch.targets.policy.actions is not None:
            return weights
        legal = batch.targets.legal.float()
        uniform = legal / legal.sum(-1, keepdim=True).clamp(min=1.0)
        return (1.0 - eps) * weights + eps * uniform * (weights.sum(-1, keepdim=True) > 0)


@dataclass(frozen=True)
class EntropyBonus:
    """Minus the policy's entropy in nats, so that a positive weight keeps the policy broad."""

    env: EnvSpec

    def __call__(self, output: UnrollOutput, batch: SampleBatch) -> Tensor:
        """[B]."""
        if self.env.action.kind == "continuous":
            entropy = gaussian_entropy(output.policy)
        else:
            entropy = categorical_entropy(
                torch.log_softmax(output.policy[..., : self.env.action.size], -1)
            )
        return -(entropy * batch.targets.policy_mask).sum(1)


@dataclass(frozen=True)
class ScalarLoss:
    """Cross-entropy of a categorical head with the two-hot target.

    Args:
        support: of the head.
        pick: (output, batch) -> (logits, raw targets, mask), all [B, steps(, S)].
        smoothing: share of uniform mass in the target.
    """

    support: Support
    pick: Callable[[UnrollOutput, SampleBatch], tuple[Tensor, Tensor, Tensor]]
    smoothing: float = 0.0

    def __call__(self, output: UnrollOutput, batch: SampleBatch) -> Tensor:
        """[B]."""
        logits, target, mask = self.pick(output, batch)
        probs = self.support.encode(target)
        if self.smoothing:
            probs = (1.0 - self.smoothing) * probs + self.smoothing / self.support.size
        return (soft_cross_entropy(logits, probs) * mask).sum(1)


def consistency_loss(output: UnrollOutput, batch: SampleBatch) -> Tensor:
    """Negative cosine of predicted and encoded latents (EfficientZero section 4.1), [B]."""
    cosine = (output.extras["ssl_online"] * output.extras["ssl_target"]).sum(-1)
    return -(cosine * batch.targets.state_mask[:, 1:]).sum(1)


def afterstate_policy_loss(output: UnrollOutput, batch: SampleBatch) -> Tensor:
    """Cross-entropy of the chance distribution with the code that occurred, [B]."""
    code = output.extras["chance_onehot"].detach()
    loss = soft_cross_entropy(output.extras["afterstate_policy_logits"], code)
    return (loss * batch.targets.state_mask[:, 1:]).sum(1)


def commitment_loss(output: UnrollOutput, batch: SampleBatch) -> Tensor:
    """Squared distance of the encoder's distribution to its own code (Stochastic MuZero), [B]."""
    code = output.extras["chance_onehot"].detach()
    loss = ((output.extras["chance_soft"] - code) ** 2).sum(-1)
    return (loss * batch.targets.state_mask[:, 1:]).sum(1)


def _value(output: UnrollOutput, batch: SampleBatch) -> tuple[Tensor, Tensor, Tensor]:
    return output.value_logits, batch.targets.value, batch.targets.value_mask


def _reward(output: UnrollOutput, batch: SampleBatch) -> tuple[Tensor, Tensor, Tensor]:
    return output.reward_logits, batch.targets.reward, batch.targets.reward_mask


def _afterstate_value(output: UnrollOutput, batch: SampleBatch) -> tuple[Tensor, Tensor, Tensor]:
    logits = output.extras["afterstate_value_logits"]
    return logits, batch.targets.value[:, :-1], batch.targets.value_mask[:, :-1]


@dataclass(frozen=True)
class NextLatentLoss:
    """Distance of the predicted to the target encoder's latent (UniZero), [B]."""

    model: Any  # a TokenModel: latent_loss(prediction, target) -> [B, T]

    def __call__(self, output: UnrollOutput, batch: SampleBatch) -> Tensor:
        """[B]."""
        loss: Tensor = self.model.latent_loss(
            output.extras["next_latent"], output.extras["next_latent_target"]
        )
        return (loss * batch.targets.state_mask[:, 1:]).sum(1)


def build_losses(
    policy: PolicyConfig, env: EnvSpec, model: nn.Module, weights: dict[str, float]
) -> Losses:
    """The named terms with their weights."""
    reward = Support(*need(policy.model.reward_support_range, "policy.model.reward_support_range"))
    value = Support(*need(policy.model.value_support_range, "policy.model.value_support_range"))
    smoothing = policy.label_smoothing_eps
    makers: dict[str, Callable[[], LossTerm]] = {
        "policy": lambda: PolicyLoss(policy, env),
        "value": lambda: ScalarLoss(value, _value, smoothing),
        "reward": lambda: ScalarLoss(reward, _reward, smoothing),
        "consistency": lambda: consistency_loss,
        "entropy": lambda: EntropyBonus(env),
        "afterstate_policy": lambda: afterstate_policy_loss,
        "afterstate_value": lambda: ScalarLoss(value, _afterstate_value, smoothing),
        "commitment": lambda: commitment_loss,
        "next_latent": lambda: NextLatentLoss(model),
    }
    return {name: (makers[name](), weight) for name, weight in weights.items()}
