"""A causal transformer with an explicit context: tokens in, outputs and keys/values out.

One function serves training (whole sequences), roots (short sequences, padded on the left) and the tree
(one token after a gathered context), so that what is learned and what is searched cannot differ. A token
attends to itself and to the ``window - 1`` tokens before it, everywhere. A token's keys and values thus
depend on its prefix alone: they never change when a child is added or an old token leaves the window, and
reusing them is exact at every depth and layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_THETA = 10_000.0  # base of the rotary wavelengths (Su et al. 2021)
_POSITION_STD = 0.02


@dataclass(frozen=True)
class TransformerShape:
    """Sizes and options.

    Args:
        width: d, a multiple of ``2 * heads``.
        window: tokens one token attends to, itself included.
        rotary: turn queries and keys by their position; else add a learned embedding of it.
        positions: tokens a sequence may have (rotary).
        dropout: on embeddings, attention and both residual branches, in training mode.
    """

    width: int
    layers: int
    heads: int
    window: int
    rotary: bool = True
    positions: int = 1024
    dropout: float = 0.0


class Attention(nn.Module):
    """Multi-head attention over a context and the tokens themselves."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(
        self,
        x: Tensor,
        turn: Tensor | None,
        context: Tensor | None,
        mask: Tensor,
        newest: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Outputs [B, N, d], and keys/values [B, n+N, 2, heads, d/heads] of context and tokens.

        Args:
            x: [B, N, d] tokens.
            turn: [B or 1, N, 3, 1, d/heads/2] complex factors for queries, keys and values.
            context: [B, n, 2, heads, d/heads] earlier keys (already turned) and values.
            mask: [B or 1, 1, N, n+N] added to the scores: 0, or -inf where attention is barred.
            newest: the output of the last token alone, [B, 1, d].
        """
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        if turn is not None:
            qkv = rotate(qkv, turn)
        keys_values = qkv[:, :, 1:]
        if context is not None:
            keys_values = torch.cat((context, keys_values), 1)
        keys, values = keys_values.permute(2, 0, 3, 1, 4).unbind(0)
        queries = qkv[:, :, 0].transpose(1, 2)
        if newest:
            queries, mask = queries[:, :, -1:], mask[:, :, -1:]
        mixed = functional.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(2)), keys_values


class Block(nn.Module):
    """Pre-norm block: x + attention(LN x), then x + MLP(LN x)."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        width = shape.width
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(shape)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(
        self,
        x: Tensor,
        turn: Tensor | None,
        context: Tensor | None,
        mask: Tensor,
        newest: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Outputs and keys/values; see ``Attention``."""
        mixed, keys_values = self.attention(self.attention_norm(x), turn, context, mask, newest)
        x = (x[:, -1:] if newest else x) + self.dropout(mixed)
        hidden = functional.gelu(self.up(self.mlp_norm(x)))
        return x + self.dropout(self.down(hidden)), keys_values


class Transformer(nn.Module):
    """Blocks and a final layer norm."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.positions = None if shape.rotary else nn.Embedding(shape.window, shape.width)
        self._half = shape.width // shape.heads // 2
        self._turns: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._initialise()

    def _initialise(self) -> None:
        """Xavier-uniform weights, each of Q, K, V as a matrix of its own; biases 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                xavier_(module)
        for block in self.blocks:
            assert isinstance(block, Block)
            xavier_(block.attention.qkv, parts=3)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=_POSITION_STD)

    def forward(
        self,
        tokens: Tensor,
        position: Tensor,
        mask: Tensor,
        context: Sequence[Tensor] | None = None,
        *,
        newest: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs [B, N, d], and per layer the keys/values of context and tokens.

        Args:
            tokens: [B, N, d].
            position: [B or 1, N] int64, index of the token in its whole sequence.
            mask: [B or 1, 1, N, n+N] additive; see ``band_mask``.
            context: per layer [B, n, 2, heads, d/heads], as returned for earlier tokens.
            newest: only the last token's output, [B, 1, d]: the last block need not finish the others.
        """
        turn = None
        if self.positions is None:
            turn = self._turn(position, tokens.dtype)
        else:
            tokens = tokens + self.positions(self._table_row(position))
        x, out = self.dropout(tokens), []
        for layer, block in enumerate(self.blocks):
            before = None if context is None else context[layer]
            last = newest and layer + 1 == len(self.blocks)
            x, keys_values = block(x, turn, before, mask, last)
            out.append(keys_values)
        return self.norm(x), out

    def _turn(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """Unit complex numbers [B or 1, N, 3, 1, half]: e^(i p w) for queries and keys, 1 for values."""
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        turn = self.turns(kind, position.device).index_select(0, position.flatten())
        return turn.view(*position.shape, 3, 1, self._half)

    def turns(self, kind: torch.dtype, device: torch.device | None = None) -> Tensor:
        """``turn_table`` in a complex type; no buffer, as casting the model must not round it."""
        key = (kind, device or torch.device("cpu"))
        if key not in self._turns:
            self._turns[key] = turn_table(self.shape.positions, self._half).to(kind).to(key[1])
        return self._turns[key]

    def _table_row(self, position: Tensor) -> Tensor:
        """Row of the learned table: positions past its end share the last row of their parity.

        A function of the token's own index alone, so keys and values stay exact. Even positions hold
        observations, odd ones actions.
        """
        last = self.shape.window - 2 + position % 2
        return torch.minimum(position, last)


def turn_table(positions: int, half: int) -> Tensor:
    """[positions, 3, half] c128: e^(i p w) for queries and keys, 1 for values.

    Angles in float64: in float32 they lose a digit every ten positions.
    """
    speeds = [_THETA ** (-i / half) for i in range(half)]  # radians per position
    speed = torch.tensor([speeds, speeds, [0.0] * half], dtype=torch.float64)
    angle = torch.arange(positions, dtype=torch.float64)[:, None, None] * speed
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Pairs (2i, 2i+1) of the last axis, as complex numbers, times ``turn``; at least in float32."""
    pairs = x if x.dtype == torch.float64 else x.float()
    turned = torch.view_as_real(torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * turn)
    return turned.flatten(-2).to(x.dtype)


def band_mask(index: Tensor, window: int, valid: Tensor | None = None) -> Tensor:
    """What each token may attend to, [N, N] bool, or [B, N, N] with ``valid``.

    Args:
        index: [N] int64, 0..N-1; token i sees j in (i - window, i].
        window: tokens one token sees, itself included.
        valid: [B, N] bool; a token that is not valid is seen by itself alone, which keeps its own softmax
            defined.
    """
    gap = index[:, None] - index
    band = (gap >= 0) & (gap < window)
    return band if valid is None else band & (valid[:, None, :] | (gap == 0))


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where ``mask`` is True, -inf elsewhere."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)


def xavier_(layer: nn.Linear, parts: int = 1) -> None:
    """Xavier-uniform weight for each of ``parts`` stacked layers, bias 0."""
    for weight in layer.weight.data.chunk(parts):
        nn.init.xavier_uniform_(weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
