"""EfficientZero's model: an LSTM predicts the sum of rewards since the last reset (Ye et al. 2021, 4.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, PolicyConfig, need
from zero_tune.models.heads import categorical_head
from zero_tune.models.latent import LatentModel
from zero_tune.models.layers import over_steps
from zero_tune.ops.support import decode_pair
from zero_tune.types import EnvSpec, LatentState, RootOutput, StepOutput


class ValuePrefixModel(LatentModel):
    """``efficientzero`` and ``sampled_efficientzero``.

    The prefix, its LSTM state and the depth are part of the latent state, so the tree needs no rule of its
    own: each edge's reward is the prefix minus its parent's, and both restart every ``lstm_horizon_len``
    steps. ``unroll`` returns prefix logits as reward logits.
    """

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        self.horizon = policy.model.lstm_horizon_len
        super().__init__(policy, env)

    def _build(self, model: ModelConfig, env: EnvSpec) -> None:
        super()._build(model, env)
        width = need(model.lstm_hidden_size, "policy.model.lstm_hidden_size")
        self.width = width
        self.lstm = nn.LSTMCell(self.reward_stem.width, width)
        self.prefix_norm = nn.BatchNorm1d(width)
        self.reward_head = categorical_head(width, model, self.reward_support.size)

    def root(self, latent: Tensor) -> RootOutput:
        """As MuZero's, with an empty prefix."""
        root = super().root(latent)
        zeros = latent.new_zeros((latent.shape[0], self.width))
        root.state.update(
            h=zeros, c=zeros.clone(), prefix=zeros[:, 0].clone(), depth=zeros[:, 0].clone()
        )
        return root

    def reward_logits(self, latents: Tensor) -> Tensor:
        """Prefix logits [B, T, S]; the LSTM restarts at steps 0, horizon, 2 horizon, ..."""
        features = over_steps(self.reward_stem, latents)
        hidden, memory = [], None
        for k in range(features.shape[1]):
            h, c = self.lstm(features[:, k], None if k % self.horizon == 0 else memory)
            memory = (h, c)
            hidden.append(h)
        logits: Tensor = over_steps(self._prefix_logits, torch.stack(hidden, 1))
        return logits

    def _prefix_logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.reward_head(functional.relu(self.prefix_norm(hidden)))
        return logits

    def recurrent_inference(self, state: LatentState, action: Tensor) -> StepOutput:
        """One step; the edge's reward is the growth of the prefix."""
        latent = self.dynamics(state["latent"], action)
        h, c = self.lstm(self.reward_stem(latent), (state["h"], state["c"]))
        logits = self._prefix_logits(h)
        policy, value = self.prediction(latent)
        prefix, value = decode_pair(self.reward_support, logits, self.value_support, value)
        depth = state["depth"] + 1.0
        keep = (torch.remainder(depth, float(self.horizon)) != 0).to(latent.dtype)
        nxt = {
            "latent": latent,
            "h": h * keep[:, None],
            "c": c * keep[:, None],
            "prefix": prefix * keep,
            "depth": depth,
        }
        return StepOutput(prefix - state["prefix"], policy, value, nxt)
