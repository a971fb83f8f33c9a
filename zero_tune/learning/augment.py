"""Image augmentation of EfficientZero: random shift and intensity, drawn per sample."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

PAD = 4


def augment(obs: Tensor, kinds: tuple[str, ...], generator: torch.Generator) -> Tensor:
    """Augmented float observations in [0, 1].

    Args:
        obs: [B, K, C, H, W], uint8 or float; all K stacks of a sample share one draw.
        kinds: subset of ``shift`` (pad 4 by replication, crop back) and ``intensity``.
    """
    out = obs.float() / 255.0 if obs.dtype == torch.uint8 else obs
    batch, device = out.shape[0], out.device
    if "shift" in kinds:
        offset = torch.randint(0, 2 * PAD + 1, (batch, 2), generator=generator).to(device)
        out = _shift(out, offset)
    if "intensity" in kinds:
        noise = torch.randn(batch, generator=generator).clamp(-2.0, 2.0).to(device)
        out = out * (1.0 + 0.05 * noise)[:, None, None, None, None]
    return out


def _shift(obs: Tensor, offset: Tensor) -> Tensor:
    height, width = obs.shape[-2:]
    padded = functional.pad(obs.flatten(1, 2), (PAD, PAD, PAD, PAD), mode="replicate")
    rows = offset[:, :1] + torch.arange(height, device=obs.device)
    columns = offset[:, 1:] + torch.arange(width, device=obs.device)
    channels = padded.shape[1]
    index = rows[:, None, :, None].expand(-1, channels, -1, padded.shape[-1])
    cropped = padded.gather(2, index)
    index = columns[:, None, None, :].expand(-1, channels, height, -1)
    return cropped.gather(3, index).view_as(obs)
