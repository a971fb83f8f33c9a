"""Observations to latents, and actions to network inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zero_tune.config import ModelConfig, need
from zero_tune.errors import ConfigError
from zero_tune.models.layers import LatentNorm, Normed, ResBlock, conv, to_float
from zero_tune.types import ActionSpec, EnvSpec


class ConvEncoder(nn.Module):
    """Image representation network; ``downsample`` adds the strided stem of MuZero's Atari network.

    The stem divides the side by 8, and by 16 for sides from 80 on (64 -> 8, 96 -> 6).
    """

    def __init__(self, model: ModelConfig, in_shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = need(model.num_channels, "policy.model.num_channels")
        norm = need(model.norm_type, "policy.model.norm_type")
        layers: list[nn.Module]
        if model.downsample:
            half = channels // 2
            layers = [
                conv(in_shape[0], half, norm, stride=2),
                nn.ReLU(),
                ResBlock(half, norm),
                ResBlock(half, norm, channels),
                ResBlock(channels, norm),
                nn.AvgPool2d(3, 2, 1),
                ResBlock(channels, norm),
            ]
            if in_shape[1] >= 80:
                layers.append(nn.AvgPool2d(3, 2, 1))
        else:
            layers = [conv(in_shape[0], channels, norm), nn.ReLU()]
        layers += [ResBlock(channels, norm) for _ in range(model.num_res_blocks)]
        self.net = nn.Sequential(*layers)
        self.latent_shape = self._dry_shape(in_shape)

    def _dry_shape(self, in_shape: tuple[int, ...]) -> tuple[int, ...]:
        with torch.no_grad():
            training = self.net.training
            shape = tuple(self.net.eval()(torch.zeros(1, *in_shape)).shape[1:])
            self.net.train(training)
        if min(shape) < 1:
            raise ConfigError(
                "policy.model.downsample",
                f"leaves nothing of an image of shape {in_shape}",
                True,
                "Set it to False.",
            )
        return shape

    def forward(self, obs: Tensor) -> Tensor:
        """[B, F*C, H, W] -> [B, channels, h, w]."""
        out: Tensor = self.net(to_float(obs))
        return out


class MLPEncoder(nn.Module):
    """Vector representation network: Linear - norm - GELU - Linear - LayerNorm.

    Its last Linear is not zero-initialised: every observation would get the same latent.
    """

    def __init__(self, model: ModelConfig, in_shape: tuple[int, ...]) -> None:
        super().__init__()
        width = need(model.latent_state_dim, "policy.model.latent_state_dim")
        norm = need(model.norm_type, "policy.model.norm_type")
        self.net = nn.Sequential(
            Normed(nn.Linear(in_shape[0], width), norm),
            nn.GELU("tanh"),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )
        self.latent_shape: tuple[int, ...] = (width,)

    def forward(self, obs: Tensor) -> Tensor:
        """[B, F*O] -> [B, D]."""
        out: Tensor = self.net(to_float(obs))
        return out


class Encoder(nn.Module):
    """Observation to latent, with the configured latent normalisation."""

    def __init__(self, model: ModelConfig, env: EnvSpec) -> None:
        super().__init__()
        shape = need(model.observation_shape, "policy.model.observation_shape")
        kind = ConvEncoder if env.is_image else MLPEncoder
        self.body = kind(model, shape)
        self.latent_shape = self.body.latent_shape
        self.norm = latent_norm(model, self.latent_shape)

    def forward(self, obs: Tensor) -> Tensor:
        """[B, *stacked obs] -> [B, *latent_shape]."""
        out: Tensor = self.norm(self.body(obs))
        return out


def latent_norm(model: ModelConfig, shape: tuple[int, ...]) -> LatentNorm:
    """The normalisation that follows both representation and dynamics."""
    kind = need(model.latent_norm, "policy.model.latent_norm")
    width = 1
    for size in shape:
        width *= size
    if kind == "simnorm" and width % model.group_size:
        raise ConfigError(
            "policy.model.group_size",
            f"must divide the latent's {width} entries",
            model.group_size,
            "Choose a divisor.",
        )
    return LatentNorm(kind, model.group_size, width)


class ActionEncoder(nn.Module):
    """Actions as vectors [B, E] or planes [B, E, h, w]; has no parameters.

    Args:
        action: a discrete action becomes one-hot (or, with ``one_hot=False``, one value a / A), a
            continuous one is used as it is.
        plane: (h, w) of the latent, or None for vector latents.
    """

    def __init__(
        self, action: ActionSpec, plane: tuple[int, int] | None, one_hot: bool = True
    ) -> None:
        super().__init__()
        self.action, self.plane = action, plane
        self.scalar = action.kind == "discrete" and not one_hot and plane is not None
        self.width = 1 if self.scalar else action.size
        self.eye: Tensor
        self.register_buffer("eye", torch.eye(action.size), persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """[B, D] -> [B, E] or [B, E, h, w]."""
        if self.action.kind == "continuous":
            code = action.float()
        elif self.scalar:
            code = action[:, :1].float() / self.action.size
        else:
            code = self.eye.index_select(0, action.flatten().long())
        if self.plane is None:
            return code
        return code[:, :, None, None].expand(-1, -1, *self.plane)
