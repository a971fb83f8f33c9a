"""The token model's simulated step as one compiled loop, for models so narrow that torch's time is overhead.

At width 64 and 8 roots a step is 2.6 million multiply-adds in some 150 torch operations. Here the two new
tokens pass through the transformer in one call, reading the keys and values of their path where they lie;
nothing is gathered or concatenated. ``Transformer`` and ``Heads`` define what is computed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from zero_tune.models.token_store import STEP_TOKENS, TreeStore
from zero_tune.ops.dense import TILE, add_, affine, gelu_, layer_norm
from zero_tune.ops.elementary import exp_below
from zero_tune.ops.jit import entry_point, regrouped
from zero_tune.ops.support import EPSILON
from zero_tune.types import Array, RootOutput, StepOutput

if TYPE_CHECKING:
    from zero_tune.models.token_model import TokenModel

_EPSILON, _HALF = np.float32(EPSILON), np.float32(0.5 + EPSILON)
_NO_BIAS = np.zeros(0, np.float32)


class BlockWeights(NamedTuple):
    """All blocks' weights, [layers, ...]; matrices are [in, out]."""

    attention_scale: Array
    attention_shift: Array
    qkv: Array
    qkv_bias: Array
    out: Array
    out_bias: Array
    mlp_scale: Array
    mlp_shift: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array


class HeadWeights(NamedTuple):
    """One or two heads on one token, [heads, ...] and their last layers; the second's may have no outputs."""

    hidden: Array
    hidden_bias: Array
    scale: Array
    shift: Array
    first: Array
    first_bias: Array
    second: Array
    second_bias: Array


class NormWeights(NamedTuple):
    """The transformer's final norm, and the next latent's (empty if that has none)."""

    scale: Array
    shift: Array
    latent_scale: Array
    latent_shift: Array


class TokenKernel:
    """The step of one model, float32 on the CPU; weights are copied at construction.

    Args:
        model: the folded model of ``Folding``, its linear weights [in, out].
    """

    def __init__(self, model: TokenModel) -> None:
        self._model = model
        shape = model.transformer.shape
        self._sizes = (shape.heads, shape.window, model.simnorm_group)
        supports = (model.reward_support, model.value_support)
        self._atoms = tuple((s.start, s.step, s.size) for s in supports)
        self._num_logits = 0 if model.gaussian else model.num_policy_params
        self.refresh()

    @staticmethod
    def fits(model: TokenModel) -> bool:
        """Whether the compiled step computes what ``model`` does."""
        return model.simnorm_group > 0 or model.next_norm.affine is not None

    def refresh(self) -> None:
        """Take over the model's present weights."""
        model, transformer = self._model, self._model.transformer
        layers = [_block(block) for block in transformer.blocks]
        self.blocks = BlockWeights(*(np.stack(parts) for parts in zip(*layers, strict=True)))
        norm = model.next_norm.affine
        nothing = (_NO_BIAS, _NO_BIAS)
        self.norms = NormWeights(*_pair(transformer.norm), *(_pair(norm) if norm else nothing))
        self.action_heads = _heads(model.action_heads)
        self.observation_heads = _heads(model.observation_heads)
        # [positions, half] complex turns, or [window, d] learned embeddings; the other one is empty
        turns, embeddings = np.zeros((0, 1), np.complex64), np.zeros((0, 1), np.float32)
        if transformer.positions is None:
            turns = transformer.turns(torch.complex64)[:, 0].contiguous().numpy()
        else:
            embeddings = _array(transformer.positions.weight)
        self.places = (turns, embeddings)
        table = model.action_embedding.table
        self.actions = None if table is None else _array(table.weight)

    def node_store(self, root: RootOutput, num_simulations: int) -> KernelStore:
        """Storage for one search, which this kernel reads and writes."""
        return KernelStore(self, root, num_simulations)

    def step(
        self, pool: Array, path: Array, mask: Array, position: Array, slot: int, action: Array
    ) -> StepOutput:
        """Outputs for one action per row; the two tokens' keys and values go to ``slot``, ``slot + 1``.

        Args:
            pool: [R, slots, layers, 2, d] float32.
            path: [R, W-1] int64 indices into the pool's first two axes, flattened.
            mask: [R, W-1] float32, 0 where the path's token is to be seen.
            position: [R] int64 of the newest token so far.
            action: [R, D].
        """
        if self.actions is None:
            token = self._model.action_embedding(torch.from_numpy(action)).numpy()
        else:
            token = self.actions[action[:, 0]]
        rows, width = token.shape
        scalars = np.empty((2, rows), np.float32)
        logits = np.empty((rows, self._num_logits), np.float32)
        features = np.empty((rows, width), np.float32)
        append_step(
            (self.blocks, self.norms, self.action_heads, self.observation_heads),
            (*self.places, position),
            (pool, path, mask, slot),
            self._sizes,
            self._atoms,
            token,
            (scalars, logits, features),
        )
        reward, value = torch.from_numpy(scalars)
        return StepOutput(reward, self._policy(logits, features), value, {})

    def _policy(self, logits: Array, features: Array) -> Tensor:
        if self._model.gaussian is not None:
            return self._model.gaussian(torch.from_numpy(features))
        return self._model.bounded(torch.from_numpy(logits))


class KernelStore(TreeStore):
    """A ``TreeStore`` whose step is a ``TokenKernel``'s."""

    def __init__(self, kernel: TokenKernel, root: RootOutput, num_simulations: int) -> None:
        self._kernel = kernel
        super().__init__(None, root, num_simulations)
        self._cells = self._pool.flatten(-2).numpy()

    def _append(
        self, path: Array, mask: Array, position: Array, slot: int, action: Array
    ) -> StepOutput:
        return self._kernel.step(self._cells, path, mask, position, slot, action)


def _array(x: Tensor) -> Array:
    return x.detach().contiguous().numpy().copy()


def _pair(module: Any) -> tuple[Array, Array]:
    return _array(module.weight), _array(module.bias)


def _block(block: Any) -> tuple[Array, ...]:
    attention = block.attention
    parts = (block.attention_norm, attention.qkv, attention.out, block.mlp_norm, block.up)
    return tuple(array for module in (*parts, block.down) for array in _pair(module))


def _heads(heads: Any) -> HeadWeights:
    weight, bias = _pair(heads.hidden)
    hidden = np.stack(np.split(weight, heads.count, 1)), bias.reshape(heads.count, -1)
    last = [_pair(layer) for layer in heads.last]
    last.append((np.zeros((heads.width, 0), np.float32), _NO_BIAS))
    norm = (_array(heads.scale), _array(heads.shift))
    return HeadWeights(*hidden, *norm, *last[0], *last[1])


@entry_point
def append_step(
    weights: Any, places: Any, store: Any, sizes: Any, atoms: Any, action: Any, out: Any
) -> None:
    """Two tokens per row: the action's, then that of the latent it leads to."""
    blocks, norms, action_heads, observation_heads = weights
    scalars, logits, features = out
    count, width = action.shape
    rows = (count + TILE - 1) // TILE * TILE  # what the rows beyond hold is never read
    x = np.zeros((rows, width), np.float32)
    x[:count] = action
    for token in range(STEP_TOKENS):
        _transform(blocks, sizes, places, store, token, x, count)
        layer_norm(x, norms.scale, norms.shift, x)
        heads = observation_heads if token else action_heads
        distribution = np.empty((rows, heads.first.shape[1]), np.float32)
        other = np.empty((rows, heads.second.shape[1]), np.float32)
        _apply(heads, x, distribution, other)
        start, step, _ = atoms[token]
        for r in range(count):
            scalars[token, r] = _decode(distribution[r], start, step)
        if token == 0:
            _latent_norm(other, norms.latent_scale, norms.latent_shift, sizes[2])
            x[:] = other
    features[:] = x[:count]
    logits[:] = other[:count]


@regrouped
def _transform(
    blocks: Any, sizes: Any, places: Any, store: Any, token: int, x: Any, count: int
) -> None:
    """``x`` [rows, d] through all blocks, in place; ``token`` 0 or 1 of the step."""
    heads, window, _ = sizes
    turns, embeddings, position = places
    pool, path, mask, slot = store
    rows, width = x.shape
    if len(embeddings) > 0:
        for r in range(count):
            p = position[r] + 1 + token
            x[r] += embeddings[min(p, window - 2 + p % 2)]
    normed, mixed = np.empty((rows, width), np.float32), np.zeros((rows, width), np.float32)
    qkv = np.empty((rows, 3 * width), np.float32)
    hidden = np.empty((rows, 4 * width), np.float32)
    cells, scores = np.empty(window, np.int64), np.empty(window, np.float32)
    flat = pool.reshape((pool.shape[0] * pool.shape[1], pool.shape[2], 2, width))
    for layer in range(len(blocks.qkv)):
        layer_norm(x, blocks.attention_scale[layer], blocks.attention_shift[layer], normed)
        affine(normed, blocks.qkv[layer], blocks.qkv_bias[layer], qkv)
        for r in range(count):
            if len(turns) > 0:
                _rotate(qkv[r, : 2 * width], turns[position[r] + 1 + token])
            own = r * pool.shape[1] + slot
            flat[own + token, layer, 0] = qkv[r, width : 2 * width]
            flat[own + token, layer, 1] = qkv[r, 2 * width :]
            seen = _visible(path[r], mask[r], own, token, cells)
            _attend(qkv[r, :width], flat, cells[:seen], layer, heads, scores, mixed[r])
        affine(mixed, blocks.out[layer], blocks.out_bias[layer], normed)
        add_(x, normed)
        layer_norm(x, blocks.mlp_scale[layer], blocks.mlp_shift[layer], normed)
        affine(normed, blocks.up[layer], blocks.up_bias[layer], hidden)
        gelu_(hidden)
        affine(hidden, blocks.down[layer], blocks.down_bias[layer], normed)
        add_(x, normed)


@regrouped
def _visible(path: Any, mask: Any, own: int, token: int, cells: Any) -> int:
    """Fill ``cells`` with the pool's cells that the row's token sees, itself last; their number."""
    n = 0
    for i in range(token, len(path)):
        if mask[i] == 0.0:
            cells[n] = path[i]
            n += 1
    for i in range(token + 1):
        cells[n] = own + i
        n += 1
    return n


@regrouped
def _attend(
    query: Any, flat: Any, cells: Any, layer: int, heads: int, scores: Any, out: Any
) -> None:
    """Softmax attention of one token, head by head."""
    size = len(query) // heads
    scale = np.float32(1.0 / math.sqrt(size))
    for h in range(heads):
        low = h * size
        top = np.float32(-np.inf)
        for n in range(len(cells)):
            key = flat[cells[n], layer, 0]
            total = np.float32(0.0)
            for i in range(low, low + size):
                total += query[i] * key[i]
            scores[n] = total * scale
            top = max(top, scores[n])
        total = np.float32(0.0)
        for n in range(len(cells)):
            scores[n] = exp_below(scores[n] - top)
            total += scores[n]
        out[low : low + size] = np.float32(0.0)
        for n in range(len(cells)):
            value, share = flat[cells[n], layer, 1], scores[n] / total
            for i in range(low, low + size):
                out[i] += share * value[i]


@regrouped
def _rotate(x: Any, turn: Any) -> None:
    """Pairs (2i, 2i+1) of each head of queries and keys, as complex numbers, times ``turn`` [half]."""
    half = len(turn)
    for start in range(0, len(x), 2 * half):
        for i in range(half):
            a, b, c, s = x[start + 2 * i], x[start + 2 * i + 1], turn[i].real, turn[i].imag
            x[start + 2 * i] = a * c - b * s
            x[start + 2 * i + 1] = a * s + b * c


@regrouped
def _apply(heads: Any, x: Any, first: Any, second: Any) -> None:
    """Outputs [rows, size] of both heads: ``Heads.forward``."""
    rows, width = len(x), heads.scale.shape[1]
    for i in range(len(heads.scale)):
        hidden = np.empty((rows, width), np.float32)
        affine(x, heads.hidden[i], heads.hidden_bias[i], hidden)
        layer_norm(hidden, heads.scale[i], heads.shift[i], hidden)
        gelu_(hidden)
        if i == 0:
            affine(hidden, heads.first, heads.first_bias, first)
        else:
            affine(hidden, heads.second, heads.second_bias, second)


@regrouped
def _decode(logits: Any, start: int, step: int) -> Any:
    """``Support.decode`` of one row."""
    top, total, mean = logits.max(), np.float32(0.0), np.float32(0.0)
    for i in range(len(logits)):
        share = exp_below(logits[i] - top)
        total += share
        mean += share * np.float32(start + step * i)  # near 0 the atoms are small, not the indices
    y = mean / total
    size = abs(y)
    q = np.sqrt(size * _EPSILON + _HALF * _HALF) + _HALF
    return y * (size + np.float32(2.0) * q) / (q * q)


@regrouped
def _latent_norm(latent: Any, scale: Any, shift: Any, group: int) -> None:
    """``LatentNorm`` in place: a softmax per group of entries, or a layer norm if ``group`` is 0."""
    if group == 0:
        layer_norm(latent, scale, shift, latent)
        return
    for r in range(len(latent)):
        for start in range(0, latent.shape[1], group):
            part = latent[r, start : start + group]
            top = part.max()
            total = np.float32(0.0)
            for i in range(group):
                part[i] = exp_below(part[i] - top)
                total += part[i]
            for i in range(group):
                part[i] /= total
