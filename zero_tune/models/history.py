"""MuZero with a recurrent state beside the latent (UniZero paper, baseline "MuZero RNN, full obs")."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, PolicyConfig, need
from zero_tune.models.encoders import ActionEncoder, latent_norm
from zero_tune.models.heads import Prediction, categorical_head
from zero_tune.models.latent import LatentModel, plane_of
from zero_tune.models.layers import Normed, ResBlock, conv, over_steps, scale_gradient
from zero_tune.types import (
    EnvSpec,
    History,
    LatentState,
    RootOutput,
    SampleBatch,
    StepOutput,
    UnrollOutput,
)

_SQUEEZE = 4  # channels of an image latent per channel of the GRU's input
_KEEP_BIAS = 2.0  # of the GRU's update gate: 0.88 of the state survives a step, not half


class RecurrentDynamics(nn.Module):
    """(latent z, hidden h, action) to (predicted next latent, next hidden)."""

    def __init__(
        self, model: ModelConfig, shape: tuple[int, ...], actions: ActionEncoder, hidden: int
    ) -> None:
        super().__init__()
        norm = need(model.norm_type, "policy.model.norm_type")
        self.actions, self.norm = actions, latent_norm(model, shape)
        size = 1
        for n in shape:
            size *= n
        if len(shape) == 3:
            self.join: nn.Module = conv(shape[0] + actions.width, shape[0], norm, kernel=1)
            self.body: nn.Module = nn.Sequential(
                *[ResBlock(shape[0], norm) for _ in range(model.num_res_blocks)]
            )
            width = max(1, shape[0] // _SQUEEZE) * shape[1] * shape[2]
        else:
            self.join = Normed(nn.Linear(shape[0] + actions.width, shape[0], bias=False), norm)
            self.body = nn.Identity()
            width = shape[0]
        self.squeeze = nn.Linear(size, width, bias=False)
        self.gru = nn.GRUCell(width, hidden)
        with torch.no_grad():  # start by keeping what is remembered, as an LSTM's forget gate does
            self.gru.bias_ih[hidden : 2 * hidden] = _KEEP_BIAS
        self.back = nn.Sequential(
            Normed(nn.Linear(hidden, hidden), norm),
            nn.ReLU(),
            Normed(nn.Linear(hidden, size), norm),
            nn.ReLU(),
        )

    def forward(self, latent: Tensor, hidden: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """([B, *latent], [B, R])."""
        hidden = self.remember(latent, hidden, action)
        nxt = self.norm(self.back(hidden).view_as(latent) + latent)
        return nxt, hidden

    def remember(self, latent: Tensor, hidden: Tensor, action: Tensor) -> Tensor:
        """The next hidden state [B, R] alone."""
        x = functional.relu(self.join(torch.cat([latent, self.actions(action)], 1)) + latent)
        x = functional.relu(self.squeeze(self.body(x).flatten(1)))
        out: Tensor = self.gru(x, hidden)
        return out


class HistoryModel(LatentModel):
    """``muzero_rnn_full_obs``: prediction from the encoded observation and a GRU state.

    Every training step starts from a true latent (full observations); policy and value are learned on what a
    search meets, the encoded root and predicted latents. LightZero learns them on true latents alone, which
    leaves a predicted one to the consistency loss: CartPole then stays below 230 of 500.

    The GRU state is zero at steps 0, L, 2L, ... of an episode (L = ``context_length_init``) and is rebuilt
    from the raw history at each root, and at the start of each training window. LightZero starts every window
    from zero: then only windows that begin with an episode hold what is to be remembered, and all others
    teach the heads to do without
    (Kapturowski et al. 2019, R2D2, section 3, on zero start states).
    """

    needs_history = True
    dynamics: RecurrentDynamics  # type: ignore[assignment]

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        super().__init__(policy, env)
        self.history_length = policy.model.context_length_init
        self.needs_future_obs = True

    def _build(self, model: ModelConfig, env: EnvSpec) -> None:
        shape = self.latent_shape
        self.hidden = need(model.rnn_hidden_size, "policy.model.rnn_hidden_size")
        one_hot = model.discrete_action_encoding_type == "one_hot"
        actions = ActionEncoder(env.action, plane_of(shape), one_hot)
        self.dynamics = RecurrentDynamics(model, shape, actions, self.hidden)
        self.reward_head = categorical_head(self.hidden, model, self.reward_support.size)
        self.prediction = Prediction(
            model, shape, env.action, self.value_support.size, extra=self.hidden
        )

    def initial_inference(self, history: History) -> RootOutput:
        """Root of the newest step: its encoded observation, and the GRU state of the steps before."""
        latents = over_steps(self.representation, history.obs)
        hidden, latent = self._recall(history, latents), latents[:, -1]
        policy, value = self.prediction(latent, hidden)
        state = {"latent": latent, "hidden": hidden}
        return RootOutput(policy, self.value_support.decode(value), state)

    def _recall(self, history: History, latents: Tensor) -> Tensor:
        """GRU state [B, R] at the newest step, from the latents [B, M, *latent] of a history."""
        length = self.history_length
        age = torch.minimum(torch.remainder(history.timestep, length), history.length - 1)
        hidden = latents.new_zeros((latents.shape[0], self.hidden))
        for m in range(length - 1):
            moved = self.dynamics.remember(latents[:, m], hidden, history.action[:, m])
            hidden = torch.where((age >= length - 1 - m)[:, None], moved, hidden)
        return hidden

    def recurrent_inference(self, state: LatentState, action: Tensor) -> StepOutput:
        """One step on predicted latents."""
        latent, hidden = self.dynamics(state["latent"], state["hidden"], action)
        policy, value = self.prediction(latent, hidden)
        return StepOutput(
            self.reward_support.decode(self.reward_head(hidden)),
            policy,
            self.value_support.decode(value),
            {"latent": latent, "hidden": hidden},
        )

    def unroll(self, batch: SampleBatch) -> UnrollOutput:
        """Teacher-forced: each step starts from the encoded observation; heads read its prediction."""
        steps, history = batch.action.shape[1], batch.history
        assert history is not None, "a recurrent state starts from the history before the window"
        before = self.history_length - 1
        # one pass of the encoder for the history, whose newest step is the window's first, and the window
        seen = torch.cat([history.obs[:, :before], batch.obs], 1)
        latents = over_steps(self.representation, seen)
        true = latents[:, before:]
        hidden = [self._recall(history, latents[:, : before + 1])]
        predicted = []
        for k in range(steps):
            latent = scale_gradient(true[:, k], self.grad_scale)
            guess, moved = self.dynamics(latent, hidden[-1], batch.action[:, k])
            predicted.append(guess)
            hidden.append(moved)
        memory = torch.stack(hidden, 1)
        met = torch.cat([true[:, :1], torch.stack(predicted, 1)], 1)
        policy, value = over_steps(self.prediction, met, memory)
        reward = over_steps(self.reward_head, memory[:, 1:])
        extras = self.consistency_extras(torch.stack(predicted, 1), batch, true[:, 1:])
        return UnrollOutput(policy, value, reward, true, extras)
