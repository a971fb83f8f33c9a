"""Stochastic MuZero's model: afterstates and learned chance codes (Antonoglou et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, PolicyConfig, need
from zero_tune.models.encoders import ActionEncoder
from zero_tune.models.heads import Prediction
from zero_tune.models.latent import Dynamics, LatentModel, plane_of
from zero_tune.models.layers import MLP, over_steps, scale_gradient, to_float
from zero_tune.ops.support import decode_pair
from zero_tune.types import (
    ActionSpec,
    EnvSpec,
    LatentState,
    RootOutput,
    SampleBatch,
    StepOutput,
    UnrollOutput,
)

Branch = Callable[[LatentState, Tensor], StepOutput]


class ChanceEncoder(nn.Module):
    """Two successive observations to logits over chance codes [B, C].

    The logits are batch-normalised, without which all transitions start with the code whose bias is largest:
    the dynamics learn to ignore it, no gradient tells the encoder to use another, and the commitment loss
    makes it certain of the one it has. With it every code is in use from the first update.
    """

    def __init__(self, shape: tuple[int, ...], codes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = 2 * shape[0]
        if len(shape) == 3:
            channels, side = width, max(shape[1:])
            while side > 8:
                layers += [nn.Conv2d(channels, 32, 3, 2, 1), nn.ReLU()]
                channels, side = 32, (side + 1) // 2
            layers += [nn.Conv2d(channels, 32, 3, 1, 1), nn.ReLU(), nn.Flatten(1)]
            with torch.no_grad():
                width = nn.Sequential(*layers)(torch.zeros(1, 2 * shape[0], *shape[1:])).shape[1]
        head = MLP(width, [128, 64], codes, "none")
        self.net = nn.Sequential(*layers, head, nn.BatchNorm1d(codes, affine=False))

    def forward(self, before: Tensor, after: Tensor) -> Tensor:
        """[B, C] logits."""
        out: Tensor = self.net(torch.cat([to_float(before), to_float(after)], 1))
        return out


class AfterstateModel(LatentModel):
    """``stochastic_muzero``: decision node -action-> chance node -code-> decision node.

    P = max(A, C): at a chance node the first C policy entries are code logits. ``recurrent_inference`` makes
    one network call where all parents are of one kind, two only where kinds meet.
    """

    #: The two kinds of steps, traced apart; ``join_branches`` chooses between them.
    branches = ("decide", "resolve")

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        self.codes = need(policy.model.chance_space_size, "policy.model.chance_space_size")
        self.true_labels = policy.use_true_chance_label_in_chance_encoder
        super().__init__(policy, env)
        self.needs_future_obs = True
        self.num_policy_params = max(env.action.size, self.codes)

    def _build(self, model: ModelConfig, env: EnvSpec) -> None:
        super()._build(model, env)
        shape = self.latent_shape
        one_hot = model.discrete_action_encoding_type == "one_hot"
        plane = plane_of(shape)
        code_spec = ActionSpec("continuous", self.codes)  # codes travel as (nearly) one-hot vectors
        actions = ActionEncoder(env.action, plane, one_hot)
        self.afterstate_dynamics = Dynamics(model, shape, actions)
        self.dynamics = Dynamics(model, shape, ActionEncoder(code_spec, plane))
        discrete = ActionSpec("discrete", self.codes)
        self.afterstate_prediction = Prediction(model, shape, discrete, self.value_support.size)
        observation = need(model.observation_shape, "policy.model.observation_shape")
        self.chance_encoder = ChanceEncoder(observation, self.codes)

    def root(self, latent: Tensor) -> RootOutput:
        """A decision node."""
        policy, value = self.prediction(latent)
        flag = torch.zeros(latent.shape[0], dtype=torch.bool, device=latent.device)
        state = {"latent": latent, "is_chance": flag}
        return RootOutput(self._pad(policy), self.value_support.decode(value), state)

    def decide(self, state: LatentState, action: Tensor) -> StepOutput:
        """From decision nodes: afterstates, with their code distribution and value; reward 0."""
        latent = self.afterstate_dynamics(state["latent"], action)
        logits, value = self.afterstate_prediction(latent)
        value = self.value_support.decode(value)
        return self._step(torch.zeros_like(value), logits, value, latent, True)

    def resolve(self, state: LatentState, code: Tensor) -> StepOutput:
        """From chance nodes: the next decision node and the reward of the whole step."""
        one_hot = functional.one_hot(code[:, 0].long().clamp(max=self.codes - 1), self.codes)
        latent = self.dynamics(state["latent"], one_hot.to(state["latent"].dtype))
        reward = self.reward_head(self.reward_stem(latent))
        policy, value = self.prediction(latent)
        reward, value = decode_pair(self.reward_support, reward, self.value_support, value)
        return self._step(reward, policy, value, latent, False)

    def recurrent_inference(self, state: LatentState, action: Tensor) -> StepOutput:
        """``decide`` or ``resolve`` per row."""
        return join_branches(state, action, self.decide, self.resolve)

    def _step(
        self, reward: Tensor, policy: Tensor, value: Tensor, latent: Tensor, chance: bool
    ) -> StepOutput:
        flag = torch.full_like(reward, float(chance)) > 0.5
        state = {"latent": latent, "is_chance": flag}
        return StepOutput(reward, self._pad(policy), value, state, flag)

    def _pad(self, policy: Tensor) -> Tensor:
        return functional.pad(policy, (0, self.num_policy_params - policy.shape[-1]))

    def unroll(self, batch: SampleBatch) -> UnrollOutput:
        """T whole steps; the code of step k comes from o_{t+k}, o_{t+k+1} or from the true label."""
        code, soft, hard = self._codes(batch)
        latents, afterstates = [self.representation(batch.obs[:, 0])], []
        for k in range(batch.action.shape[1]):
            start = scale_gradient(latents[-1], self.grad_scale)
            afterstates.append(self.afterstate_dynamics(start, batch.action[:, k]))
            latents.append(self.dynamics(afterstates[-1], code[:, k]))
        stacked = torch.stack(latents, 1)
        policy, value = over_steps(self.prediction, stacked)
        code_logits, after_value = over_steps(
            self.afterstate_prediction, torch.stack(afterstates, 1)
        )
        extras = {
            "afterstate_policy_logits": code_logits,
            "afterstate_value_logits": after_value,
            "chance_soft": soft,
            "chance_onehot": hard,
            **self.consistency_extras(stacked[:, 1:], batch),
        }
        reward = self.reward_logits(stacked[:, 1:])
        return UnrollOutput(self._pad(policy), value, reward, stacked, extras)

    def _codes(self, batch: SampleBatch) -> tuple[Tensor, Tensor, Tensor]:
        """(code fed to the dynamics, encoder distribution, one-hot code), each [B, T, C].

        The code is one-hot in the forward pass and lets the gradient of reward, value and policy losses
        through to the encoder's softmax (straight-through); otherwise the encoder would never learn.
        """
        logits = over_steps(self.chance_encoder, batch.obs[:, :-1], batch.obs[:, 1:])
        soft = torch.softmax(logits, -1)
        hard = functional.one_hot(soft.argmax(-1), self.codes).to(soft.dtype)
        code = hard + soft - soft.detach()
        if self.true_labels and batch.chance is not None:
            label = batch.chance
            known = (label >= 0).unsqueeze(-1)
            true = functional.one_hot(label.clamp(0, self.codes - 1), self.codes).to(soft.dtype)
            hard = torch.where(known, true, hard)
            code = torch.where(known, true, code)
        return code, soft, hard


def join_branches(
    state: LatentState, action: Tensor, decide: Branch, resolve: Branch
) -> StepOutput:
    """Per row ``resolve`` where the parent is a chance node, else ``decide``; one call if all agree."""
    chance = state["is_chance"]
    if bool(chance.all()):
        return resolve(state, action)
    if not bool(chance.any()):
        return decide(state, action)
    # an action or code is out of the other branch's range at most; those rows are discarded
    first, second = decide(state, torch.where(chance[:, None], 0, action)), resolve(state, action)
    flag = ~chance
    latent = first.state["latent"]
    wide = chance.view(-1, *([1] * (latent.dim() - 1)))
    return StepOutput(
        torch.where(chance, second.reward, first.reward),
        torch.where(chance[:, None], second.policy, first.policy),
        torch.where(chance, second.value, first.value),
        {"latent": torch.where(wide, second.state["latent"], latent), "is_chance": flag},
        flag,
    )
