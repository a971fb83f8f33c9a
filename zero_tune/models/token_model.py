"""UniZero's world model (Pu et al. 2024): a transformer over observation and action tokens.

A history is the sequence z_0, e(a_0), z_1, e(a_1), ...: two tokens a timestep. The output at an observation
token gives policy and value, at an action token reward and the next latent. Positions count tokens from
the start of the sequence at hand, so a root at any time of an episode looks like the sequences trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, PolicyConfig, need
from zero_tune.models.encoders import ConvEncoder, latent_norm
from zero_tune.models.heads import GaussianOutput
from zero_tune.models.layers import MLP, to_float
from zero_tune.models.token_store import STEP_TOKENS, TreeStore
from zero_tune.models.transformer import (
    Transformer,
    TransformerShape,
    additive,
    band_mask,
    xavier_,
)
from zero_tune.ops.support import Support, decode_pair
from zero_tune.types import (
    ActionSpec,
    EnvSpec,
    History,
    LatentState,
    RootOutput,
    SampleBatch,
    StepOutput,
    UnrollOutput,
)

if TYPE_CHECKING:
    from zero_tune.models.token_kernel import TokenKernel

_EMBEDDING_STD = 0.02
_GROUP_KL_FLOOR = 1e-6
_WIDEST_COMPILED = 128


class TokenEncoder(nn.Module):
    """Observation to latent [N, d]: convolutions or an MLP, a linear map, and the latent norm."""

    def __init__(self, model: ModelConfig, env: EnvSpec, width: int) -> None:
        super().__init__()
        shape = need(model.observation_shape, "policy.model.observation_shape")
        self.body: nn.Module
        if env.is_image:
            image = ConvEncoder(model, shape)
            features = 1
            for size in image.latent_shape:
                features *= size
            self.body = nn.Sequential(image, nn.Flatten(), nn.Linear(features, width, bias=False))
        else:
            norm = need(model.norm_type, "policy.model.norm_type")
            self.body = MLP(shape[0], [width], width, norm, act=nn.GELU)
        self.norm = latent_norm(model, (width,))

    def forward(self, obs: Tensor) -> Tensor:
        """[N, *stacked obs] -> [N, d]."""
        latent: Tensor = self.norm(self.body(to_float(obs)))
        return latent


class ActionEmbedding(nn.Module):
    """Actions as tokens: a table of A vectors, or a linear map of a continuous action."""

    def __init__(self, action: ActionSpec, width: int) -> None:
        super().__init__()
        self.table: nn.Embedding | None = None
        if action.kind == "discrete":
            self.table = nn.Embedding(action.size, width)
            nn.init.normal_(self.table.weight, std=_EMBEDDING_STD)
        else:
            self.linear = nn.Linear(action.size, width, bias=False)
            xavier_(self.linear)

    def forward(self, action: Tensor) -> Tensor:
        """[..., D] -> [..., d]."""
        if self.table is not None:
            token: Tensor = self.table(action[..., 0].long())
            return token
        token = self.linear(action.to(self.linear.weight.dtype))
        return token


class Heads(nn.Module):
    """Linear - LN - GELU - Linear for each output, the hidden layers of all of them in one product.

    The transformer's final norm stands in for the layer norm that UniZero's heads begin with.

    Args:
        sizes: widths of the outputs.
        zero: per output, whether its last layer starts at 0.
    """

    def __init__(self, width: int, sizes: Sequence[int], zero: Sequence[bool]) -> None:
        super().__init__()
        self.count, self.width = len(sizes), 4 * width
        hidden = self.width
        self.hidden = nn.Linear(width, self.count * hidden)
        xavier_(self.hidden, parts=self.count)
        self.scale = nn.Parameter(torch.ones(self.count, hidden))
        self.shift = nn.Parameter(torch.zeros(self.count, hidden))
        self.last = nn.ModuleList()
        for size, start_at_zero in zip(sizes, zero, strict=True):
            layer = nn.Linear(hidden, size)
            xavier_(layer)
            if start_at_zero:
                nn.init.zeros_(layer.weight)
            self.last.append(layer)

    def forward(self, x: Tensor) -> list[Tensor]:
        """[N, d] -> per output [N, size]."""
        hidden = self.hidden(x).unflatten(-1, (self.count, self.width))
        hidden = functional.layer_norm(hidden, (self.width,))
        hidden = functional.gelu(torch.addcmul(self.shift, hidden, self.scale))
        return [layer(part) for layer, part in zip(self.last, hidden.unbind(-2), strict=True)]


class TokenModel(nn.Module):
    """``unizero`` and ``sampled_unizero``.

    A latent state is the window of the last W - 1 tokens, W = 2 * num_unroll_steps: their keys and values
    ``keys_values`` [B, W-1, layers, 2, heads, d/heads] and ``mask`` [B, W-1] (0, or -inf before the start
    of the sequence), filled from the right, and the ``position`` [B] of the newest token. It is a function
    of raw history alone: nothing outlives a call, so new weights leave nothing stale behind.
    """

    needs_future_obs = True
    needs_history = False
    traceable = True
    store = TreeStore

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        super().__init__()
        model = policy.model
        width = need(model.embed_dim, "policy.model.embed_dim")
        self.history_length = model.infer_context_length
        self.window = 2 * need(policy.num_unroll_steps, "policy.num_unroll_steps")
        self.num_policy_params = env.action.size * (2 if env.action.kind == "continuous" else 1)
        self.logit_bound = model.policy_logits_soft_clip
        self.simnorm_group = model.group_size if model.latent_norm == "simnorm" else 0
        self.reward_support = Support(
            *need(model.reward_support_range, "policy.model.reward_support_range")
        )
        self.value_support = Support(
            *need(model.value_support_range, "policy.model.value_support_range")
        )
        self.encoder = TokenEncoder(model, env, width)
        self.action_embedding = ActionEmbedding(env.action, width)
        simulations = max(
            policy.num_simulations or 0,
            policy.collect_num_simulations or 0,
            policy.eval_num_simulations or 0,
        )
        deepest = 2 * self.history_length - 1 + STEP_TOKENS * simulations
        shape = TransformerShape(
            width=width,
            layers=model.num_layers,
            heads=need(model.num_heads, "policy.model.num_heads"),
            window=self.window,
            rotary=model.rotary_emb,
            positions=max(deepest, TransformerShape.positions),
            dropout=need(model.dropout, "policy.model.dropout"),
        )
        self.transformer = Transformer(shape)
        zero = model.last_linear_layer_init_zero
        # a next latent that starts constant would make all first tree nodes alike
        self.action_heads = Heads(width, [self.reward_support.size, width], [zero, False])
        self.next_norm = latent_norm(model, (width,))
        self.gaussian: GaussianOutput | None = None
        sizes = [self.value_support.size]
        if env.action.kind == "continuous":
            self.gaussian = GaussianOutput(width, model, env.action.size)
        else:
            sizes.append(env.action.size)
        self.observation_heads = Heads(width, sizes, [zero] * len(sizes))

    def encode(self, obs: Tensor) -> Tensor:
        """Latents [N, d] of stacked observations [N, ...]."""
        latent: Tensor = self.encoder(obs)
        return latent

    def initial_inference(self, history: History) -> RootOutput:
        """Root from the last M observations and the actions between them, in one pass.

        What lies before the episode's start is neither read nor attended to, so environments just reset
        and others in mid-episode go through the same code.
        """
        latent = self.encode(history.obs.flatten(0, 1)).unflatten(0, (-1, self.history_length))
        length = 2 * self.history_length - 1
        index = torch.arange(length, device=latent.device)
        start = 2 * (self.history_length - history.length)[:, None]
        valid = index >= start  # [B, 2M-1]
        action = history.action[:, :-1]
        action = action.masked_fill(~valid[:, 1::2, None], 0)
        tokens = interleave(latent, self.action_embedding(action))
        tokens = tokens.masked_fill(~valid[:, :, None], 0.0)
        mask = additive(band_mask(index, self.window, valid), tokens.dtype)
        position = (index - start).clamp(min=0)
        out, keys_values = self.transformer(tokens, position, mask[:, None], newest=True)
        policy, value = self._observation_outputs(out[:, -1])
        # the window is W - 1 tokens wide for every root; what is missing on the left stays masked
        missing, excess = max(self.window - 1 - length, 0), max(length - self.window + 1, 0)
        kept = torch.stack([kv[:, excess:] for kv in keys_values], 2)
        seen = additive(valid[:, excess:], tokens.dtype)
        state = {
            "keys_values": functional.pad(kept, (0, 0) * 4 + (missing, 0)),
            "mask": functional.pad(seen, (missing, 0), value=-torch.inf),
            "position": position[:, -1],
        }
        return RootOutput(policy, self.value_support.decode(value), state)

    def recurrent_inference(
        self, state: LatentState, action: Tensor, latent: Tensor | None = None
    ) -> StepOutput:
        """Append the action's token and the predicted latent's token to the window.

        Args:
            latent: [B, d] used in place of the predicted latent, to compare a chain of steps with the
                teacher-forced ``unroll``.
        """
        context: Sequence[Tensor] = state["keys_values"].unbind(2)
        mask = functional.pad(state["mask"], (0, STEP_TOKENS))[:, None, None]
        position = state["position"][:, None]
        token = self.action_embedding(action)[:, None]
        out, keys_values = self.transformer(token, position + 1, mask[..., :-1], context)
        reward, predicted = self.action_heads(out[:, 0])
        token = (self.next_norm(predicted) if latent is None else latent)[:, None]
        context = [kv[:, 1:] for kv in keys_values]
        out, keys_values = self.transformer(token, position + 2, mask[..., 1:], context)
        successor = {
            "keys_values": torch.stack([kv[:, 1:] for kv in keys_values], 2),
            "mask": mask[:, 0, 0, STEP_TOKENS:],
            "position": position[:, 0] + STEP_TOKENS,
        }
        policy, value = self._observation_outputs(out[:, 0])
        reward, value = decode_pair(self.reward_support, reward, self.value_support, value)
        return StepOutput(reward, policy, value, successor)

    def unroll(self, batch: SampleBatch) -> UnrollOutput:
        """One teacher-forced pass over z_t, a_t, ..., a_{t+T-1}, z_{t+T}: 2T + 1 tokens.

        LightZero's pass leaves out z_{t+T}. With it every state has a policy and a value, as in all other
        models, and the last next latent has a label; the band keeps z_{t+T} within the window.
        """
        steps = batch.action.shape[1]
        latent = self.encode(batch.obs.flatten(0, 1)).unflatten(0, (-1, steps + 1))
        tokens = interleave(latent, self.action_embedding(batch.action))
        index = torch.arange(2 * steps + 1, device=tokens.device)
        mask = additive(band_mask(index, self.window), tokens.dtype)[None, None]
        out, _ = self.transformer(tokens, index[None], mask)
        policy, value = self._observation_outputs(out[:, 0::2].flatten(0, 1))
        reward, predicted = self.action_heads(out[:, 1::2].flatten(0, 1))
        return UnrollOutput(
            policy.unflatten(0, (-1, steps + 1)),
            value.unflatten(0, (-1, steps + 1)),
            reward.unflatten(0, (-1, steps)),
            latent,
            {"next_latent": self.next_norm(predicted).unflatten(0, (-1, steps))},
        )

    def latent_loss(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Distance of latents [..., d] to their labels, [...]: KL per SimNorm group, else squared error."""
        if not self.simnorm_group:
            return ((predicted - target) ** 2).mean(-1)
        label = target.unflatten(-1, (-1, self.simnorm_group)) + _GROUP_KL_FLOOR
        guess = predicted.unflatten(-1, (-1, self.simnorm_group)) + _GROUP_KL_FLOOR
        return (label * (label.log() - guess.log())).sum(-1).mean(-1)

    def latent_scale_parameters(self) -> list[nn.Parameter]:
        """Parameters in proportion to which the encoder's latents grow; empty where they are bounded."""
        affine = self.encoder.norm.affine
        return [] if affine is None else [affine.weight, affine.bias]

    def node_store(self, root: RootOutput, num_simulations: int) -> TreeStore:
        """Storage for one search: each node's own two tokens."""
        return TreeStore(self.recurrent_inference, root, num_simulations)

    def compiled_step(self) -> TokenKernel | None:
        """The step of a folded model so narrow that torch's time is mostly overhead; else None."""
        if self.transformer.shape.width > _WIDEST_COMPILED:
            return None
        from zero_tune.models.token_kernel import TokenKernel  # compiles: for acting only

        return TokenKernel(self) if TokenKernel.fits(self) else None

    def clear_caches(self) -> None:
        """Drop derived data: there is none, every root is built from raw history."""

    def recompute_pos_emb_diff_and_clear_cache(self) -> None:
        """Nothing to recompute: keys keep their own position, and no window is ever shifted."""
        self.clear_caches()

    def _observation_outputs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Policy parameters [N, P] and value logits [N, S] at observation tokens."""
        value, *logits = self.observation_heads(x)
        return self.bounded(*logits) if self.gaussian is None else self.gaussian(x), value

    def bounded(self, logits: Tensor) -> Tensor:
        """Policy logits within the configured bound, if there is one."""
        bound = self.logit_bound
        return bound * torch.tanh(logits / bound) if bound else logits


def interleave(latent: Tensor, action: Tensor) -> Tensor:
    """z_0, e_0, z_1, ..., z_n [B, 2n+1, d] from latents [B, n+1, d] and action tokens [B, n, d]."""
    pairs = torch.stack((latent[:, :-1], action.to(latent.dtype)), 2).flatten(1, 2)
    return torch.cat((pairs, latent[:, -1:]), 1)
