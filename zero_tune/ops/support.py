"""Scalar transform and categorical supports (MuZero appendix F, Network Architecture).

Networks predict values and rewards as categorical distributions over atoms in the space of
``h(x) = sign(x)(sqrt(|x|+1) - 1) + eps x``.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 0.001
_HALF = 0.5 + EPSILON
_HALF_SQUARED = _HALF**2


def scalar_transform(x: Tensor) -> Tensor:
    """``h(x)``, elementwise; compresses large values."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1.0) - 1.0) + EPSILON * x


def inverse_scalar_transform(y: Tensor) -> Tensor:
    """``h^-1(y)``, elementwise, in a form that loses no digits near 0 in float32.

    The textbook form ``((sqrt(1 + 4 eps (|y| + 1 + eps)) - 1) / 2 eps)^2 - 1`` subtracts nearly equal
    numbers. With ``q = (s + 1 + 2 eps) / 2`` and ``s = sqrt(1 + 4 eps (|y| + 1 + eps))``, whose root is of
    ``4 eps |y| + (1 + 2 eps)^2``, it is ``y (|y| + 2 q) / q^2``: nothing is subtracted.
    """
    size = torch.abs(y)
    q = torch.sqrt(size * EPSILON + _HALF_SQUARED) + _HALF
    return y * torch.add(size, q, alpha=2.0) / (q * q)


class Support:
    """Atoms ``arange(start, stop, step)`` in h-space.

    Args:
        start: first atom.
        stop: exclusive end, as in ``range``.
        step: distance between atoms.
    """

    def __init__(self, start: int, stop: int, step: int = 1) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.size = len(range(start, stop, step))
        self.last = start + (self.size - 1) * step
        self.atoms = torch.arange(start, stop, step, dtype=torch.float32)  # [S]

    def same_atoms(self, other: Support) -> bool:
        """Whether both have the same atoms."""
        return (self.start, self.stop, self.step) == (other.start, other.stop, other.step)

    @property
    def max_value(self) -> float:
        """Largest scalar on the raw scale that can be represented."""
        return float(inverse_scalar_transform(torch.tensor(float(self.last), dtype=torch.float64)))

    def encode(self, x: Tensor) -> Tensor:
        """Two-hot distribution of ``h(x)``: [...] raw scalars -> [..., S], rows sum to 1.

        Scalars outside the range put all mass on the edge atom.
        """
        z = scalar_transform(x).clamp(self.start, self.last)
        position = (z - self.start) / self.step
        low = position.floor().clamp(max=self.size - 1)
        share = position - low
        index = low.long()
        out = torch.zeros(*x.shape, self.size, dtype=z.dtype, device=x.device)
        out.scatter_add_(-1, index.unsqueeze(-1), (1.0 - share).unsqueeze(-1))
        upper = (index + 1).clamp(max=self.size - 1)
        out.scatter_add_(-1, upper.unsqueeze(-1), share.unsqueeze(-1))
        return out

    def decode(self, logits: Tensor) -> Tensor:
        """Raw scalars [...] from logits [..., S]: the expectation over atoms first, h^-1 after."""
        return inverse_scalar_transform(self.expectation(logits))

    def expectation(self, logits: Tensor) -> Tensor:
        """Mean of the distribution in h-space, [...]."""
        if self.atoms.device != logits.device:
            self.atoms = self.atoms.to(logits.device)
        atoms = self.atoms if logits.dtype == torch.float32 else self.atoms.to(logits.dtype)
        return torch.softmax(logits, -1) @ atoms

    def clipped_share(self, x: Tensor) -> Tensor:
        """Share of scalars that fall outside the range, [] f32."""
        z = scalar_transform(x)
        return ((z < self.start) | (z > self.last)).float().mean()


def decode_pair(
    first: Support, logits: Tensor, second: Support, others: Tensor
) -> tuple[Tensor, Tensor]:
    """``first.decode(logits), second.decode(others)`` in fewer operations, [B] each."""
    if first.same_atoms(second):
        both = first.decode(torch.cat([logits, others]))
    else:
        both = inverse_scalar_transform(
            torch.cat([first.expectation(logits), second.expectation(others)])
        )
    low, high = both.chunk(2)
    return low, high


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """``-sum target log softmax(logits)`` over the last axis."""
    return -(target * torch.log_softmax(logits, -1)).sum(-1)
