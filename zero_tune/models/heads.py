"""Heads on a latent, and the SimSiam networks of the consistency loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, need
from zero_tune.models.layers import MLP, Normed, ResBlock, two_layers
from zero_tune.types import ActionSpec

_LOG_SIGMA_RANGE = (-20.0, 2.0)
_CONV_HEAD_CHANNELS = 16


class GaussianOutput(nn.Module):
    """(mu, sigma) [B, 2D] of a diagonal Gaussian; sigma is positive.

    ``sigma_type``: ``conditioned`` on the input, ``independent`` (a learned vector) or ``fixed``.
    """

    def __init__(self, width: int, model: ModelConfig, dim: int) -> None:
        super().__init__()
        self.kind, self.bound = model.sigma_type, model.bound_type
        self.fixed = model.fixed_sigma_value
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.mu = nn.Linear(width, dim)
        layers = [self.mu]
        if self.kind == "conditioned":
            self.log_sigma = nn.Linear(width, dim)
            layers.append(self.log_sigma)
        elif self.kind == "independent":
            self.free_log_sigma = nn.Parameter(torch.zeros(dim))
        for layer in layers:
            nn.init.uniform_(layer.weight, -model.init_w, model.init_w)
            nn.init.uniform_(layer.bias, -model.init_w, model.init_w)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, 2D]."""
        x = self.body(x)
        mu: Tensor = self.mu(x)
        if self.bound == "tanh":
            mu = torch.tanh(mu)
        if self.kind == "conditioned":
            sigma = self.log_sigma(x).clamp(*_LOG_SIGMA_RANGE).exp()
        elif self.kind == "independent":
            sigma = self.free_log_sigma.clamp(*_LOG_SIGMA_RANGE).exp().expand_as(mu)
        else:
            sigma = torch.full_like(mu, self.fixed)
        return torch.cat([mu, sigma], -1)


class Stem(nn.Module):
    """Latent to flat features of one head: 1x1 conv - norm - relu - flatten.

    For vectors nothing, or two layers if ``deep``.
    """

    def __init__(self, shape: tuple[int, ...], norm: str, *, deep: bool = False) -> None:
        super().__init__()
        self.net: nn.Module = nn.Identity()
        self.width = shape[0]
        if len(shape) == 3:
            layer = nn.Conv2d(shape[0], _CONV_HEAD_CHANNELS, 1)
            self.net = nn.Sequential(Normed(layer, norm), nn.ReLU(), nn.Flatten(1))
            self.width = _CONV_HEAD_CHANNELS * shape[1] * shape[2]
        elif deep:
            self.net = two_layers(shape[0], shape[0], norm)

    def forward(self, latent: Tensor) -> Tensor:
        """[B, *latent] -> [B, width]."""
        out: Tensor = self.net(latent)
        return out


def categorical_head(width: int, model: ModelConfig, out: int) -> MLP:
    """The MLP from features to logits, zero-initialised at its end if so configured."""
    hidden = need(model.fc_hidden, "policy.model.fc_hidden")
    norm = need(model.norm_type, "policy.model.norm_type")
    return MLP(width, [hidden], out, norm, zero_last=model.last_linear_layer_init_zero)


def policy_head(width: int, model: ModelConfig, action: ActionSpec) -> nn.Module:
    """Logits for discrete actions, (mu, sigma) for continuous ones."""
    if action.kind == "continuous":
        return GaussianOutput(width, model, action.size)
    return categorical_head(width, model, action.size)


class Prediction(nn.Module):
    """Latent to (policy parameters, value logits)."""

    def __init__(
        self,
        model: ModelConfig,
        shape: tuple[int, ...],
        action: ActionSpec,
        value_size: int,
        extra: int = 0,
    ) -> None:
        super().__init__()
        norm = need(model.norm_type, "policy.model.norm_type")
        self.body: nn.Module
        if len(shape) == 3:
            self.body = nn.Sequential(
                *[ResBlock(shape[0], norm) for _ in range(model.num_res_blocks)]
            )
        else:
            self.body = two_layers(shape[0], shape[0], norm)
        self.policy_stem, self.value_stem = Stem(shape, norm), Stem(shape, norm)
        self.policy = policy_head(self.policy_stem.width + extra, model, action)
        self.value = categorical_head(self.value_stem.width + extra, model, value_size)

    def forward(self, latent: Tensor, extra: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """([B, P], [B, S]); ``extra`` [B, E] is appended to both heads' features."""
        body = self.body(latent)
        policy, value = self.policy_stem(body), self.value_stem(body)
        if extra is not None:
            policy, value = torch.cat([policy, extra], -1), torch.cat([value, extra], -1)
        return self.policy(policy), self.value(value)


class Consistency(nn.Module):
    """SimSiam networks of EfficientZero's self-supervised consistency loss (section 4.1)."""

    def __init__(self, width: int, model: ModelConfig) -> None:
        super().__init__()
        hid, mid = model.proj_hid, model.pred_hid
        self.projection = nn.Sequential(
            Normed(nn.Linear(width, hid), "BN"),
            nn.ReLU(),
            Normed(nn.Linear(hid, hid), "BN"),
            nn.ReLU(),
            Normed(nn.Linear(hid, hid), "BN"),
        )
        self.prediction_head = nn.Sequential(
            Normed(nn.Linear(hid, mid), "BN"), nn.ReLU(), nn.Linear(mid, hid)
        )

    def online(self, latent: Tensor) -> Tensor:
        """Unit vectors [B, proj_hid] of predicted latents, with gradient."""
        out = self.prediction_head(self.projection(latent.flatten(1)))
        return functional.normalize(out, dim=-1, eps=1e-5)

    @torch.no_grad()
    def target(self, latent: Tensor) -> Tensor:
        """Unit vectors [B, proj_hid] of encoded latents, without gradient."""
        return functional.normalize(self.projection(latent.flatten(1)), dim=-1, eps=1e-5)
