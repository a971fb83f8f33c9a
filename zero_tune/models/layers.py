"""Building blocks shared by all models.

A convolution or linear layer and its normalisation are one module (``Normed``), so that inference can
fold batch norm into the weights by swapping that module alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Normed(nn.Module):
    """A conv or linear layer followed by its normalisation.

    Args:
        layer: the layer; its bias may be absent.
        norm: ``BN``, ``LN`` (GroupNorm with one group for images) or ``none``.
    """

    def __init__(self, layer: nn.Conv2d | nn.Linear, norm: str) -> None:
        super().__init__()
        self.layer = layer
        conv = isinstance(layer, nn.Conv2d)
        width = layer.out_channels if isinstance(layer, nn.Conv2d) else layer.out_features
        self.norm: nn.Module
        if norm == "BN":
            self.norm = nn.BatchNorm2d(width) if conv else nn.BatchNorm1d(width)
        elif norm == "LN":
            self.norm = nn.GroupNorm(1, width) if conv else nn.LayerNorm(width)
        else:
            self.norm = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Normalised output of the layer."""
        out: Tensor = self.norm(self.layer(x))
        return out


def conv(
    cin: int, cout: int, norm: str, *, kernel: int = 3, stride: int = 1, bias: bool = False
) -> Normed:
    """Convolution that keeps the size (up to the stride), with its norm."""
    layer = nn.Conv2d(cin, cout, kernel, stride, padding=kernel // 2, bias=bias)
    return Normed(layer, norm)


class ResBlock(nn.Module):
    """Two 3x3 convolutions with a skip; with ``cout`` given, a strided block of twice the stride."""

    def __init__(self, channels: int, norm: str, cout: int | None = None) -> None:
        super().__init__()
        out, stride = (channels, 1) if cout is None else (cout, 2)
        self.first = conv(channels, out, norm, stride=stride)
        self.second = conv(out, out, norm)
        self.skip: nn.Module = nn.Identity()
        if cout is not None:
            self.skip = nn.Conv2d(channels, cout, 3, 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """relu(skip(x) + f(x))."""
        out = self.second(functional.relu(self.first(x)))
        return functional.relu(out + self.skip(x))


def two_layers(width: int, out: int, norm: str) -> nn.Sequential:
    """Linear - norm - relu twice."""
    return nn.Sequential(
        Normed(nn.Linear(width, out), norm), nn.ReLU(), Normed(nn.Linear(out, out), norm), nn.ReLU()
    )


class MLP(nn.Sequential):
    """Linear - norm - act for each hidden width, then a plain Linear.

    Args:
        zero_last: start the last Linear at weight and bias 0.
    """

    def __init__(
        self,
        width: int,
        hidden: Sequence[int],
        out: int,
        norm: str,
        *,
        act: type[nn.Module] = nn.ReLU,
        zero_last: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        for size in hidden:
            layers += [Normed(nn.Linear(width, size), norm), act()]
            width = size
        last = nn.Linear(width, out)
        if zero_last:
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        super().__init__(*layers, last)


def minmax_normalize(latent: Tensor) -> Tensor:
    """Scale each sample to [0, 1] over all its entries (MuZero appendix G)."""
    flat = latent.flatten(1)
    low = flat.min(1, keepdim=True).values
    span = (flat.max(1, keepdim=True).values - low).clamp(min=1e-8)
    return ((flat - low) / span).view_as(latent)


class LatentNorm(nn.Module):
    """Normalisation of a latent: ``none``, ``minmax``, ``simnorm`` or ``layernorm``.

    SimNorm is a softmax in each group of ``group`` entries of the flattened latent.
    """

    def __init__(self, kind: str, group: int, width: int) -> None:
        super().__init__()
        self.kind, self.group = kind, group
        self.affine = nn.LayerNorm(width) if kind == "layernorm" else None

    def forward(self, latent: Tensor) -> Tensor:
        """Same shape."""
        if self.kind == "minmax":
            return minmax_normalize(latent)
        if self.kind == "simnorm":
            groups = latent.flatten(1).unflatten(1, (-1, self.group))
            return torch.softmax(groups, -1).flatten(1).view_as(latent)
        if self.affine is not None:
            out: Tensor = self.affine(latent.flatten(1)).view_as(latent)
            return out
        return latent


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """``x`` forward; its gradient times ``scale`` backward (MuZero appendix G: 1/2 at the dynamics)."""
    return x if scale == 1.0 else x * scale + x.detach() * (1.0 - scale)


def over_steps(function: Callable[..., Any], *sequences: Tensor) -> Any:
    """A function of rows, applied to all steps of [B, T, ...] at once; its output(s) as [B, T, ...].

    One call for T steps costs little more than one for a single step. Batch norm sees the same mixture of
    real and imagined latents that its running statistics describe.
    """
    steps = sequences[0].shape[1]
    out = function(*(x.flatten(0, 1) for x in sequences))
    if isinstance(out, Tensor):
        return out.unflatten(0, (-1, steps))
    return tuple(x.unflatten(0, (-1, steps)) for x in out)


def to_float(obs: Tensor) -> Tensor:
    """Observations as floats: uint8 images become [0, 1], floats are left alone."""
    return obs.float() / 255.0 if obs.dtype == torch.uint8 else obs
