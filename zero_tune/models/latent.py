"""MuZero's model: representation, dynamics, prediction (Schrittwieser et al. 2020, appendix G)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from zero_tune.config import ModelConfig, PolicyConfig, need
from zero_tune.models.encoders import ActionEncoder, Encoder, latent_norm
from zero_tune.models.heads import Consistency, Prediction, Stem, categorical_head
from zero_tune.models.layers import ResBlock, conv, over_steps, scale_gradient, two_layers
from zero_tune.models.store import PoolStore
from zero_tune.ops.support import Support, decode_pair
from zero_tune.types import (
    EnvSpec,
    History,
    LatentState,
    RootOutput,
    SampleBatch,
    StepOutput,
    UnrollOutput,
)


class Dynamics(nn.Module):
    """(latent, action) to the next latent."""

    def __init__(self, model: ModelConfig, shape: tuple[int, ...], actions: ActionEncoder) -> None:
        super().__init__()
        self.actions = actions
        norm = need(model.norm_type, "policy.model.norm_type")
        self.image = len(shape) == 3
        self.residual = self.image or model.res_connection_in_dynamics
        self.norm = latent_norm(model, shape)
        width = shape[0] + actions.width
        self.body: nn.Module = nn.Identity()
        if self.image:
            self.join: nn.Module = conv(width, shape[0], norm)
            self.body = nn.Sequential(
                *[ResBlock(shape[0], norm) for _ in range(model.num_res_blocks)]
            )
        else:
            self.join = two_layers(width, shape[0], norm)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        """[B, *latent_shape], [B, D] -> [B, *latent_shape]."""
        x = self.join(torch.cat([latent, self.actions(action)], 1))
        if self.image:
            x = functional.relu(x + latent)
        elif self.residual:
            x = x + latent
        nxt: Tensor = self.norm(self.body(x))
        return nxt


def plane_of(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """(h, w) of an image latent, None for a vector."""
    return (shape[1], shape[2]) if len(shape) == 3 else None


class LatentModel(nn.Module):
    """``muzero``, ``sampled_muzero``, ``gumbel_muzero``; the base of the other latent models."""

    history_length = 1
    needs_history = False
    traceable = True

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        super().__init__()
        model = policy.model
        self.env = env
        self.reward_support = Support(
            *need(model.reward_support_range, "policy.model.reward_support_range")
        )
        self.value_support = Support(
            *need(model.value_support_range, "policy.model.value_support_range")
        )
        self.grad_scale = need(policy.latent_grad_scale, "policy.latent_grad_scale")
        self.num_policy_params = env.action.size * (2 if env.action.kind == "continuous" else 1)
        self.representation = Encoder(model, env)
        self.latent_shape = self.representation.latent_shape
        self._build(model, env)
        self.consistency: Consistency | None = None
        if model.self_supervised_learning_loss:
            width = 1
            for size in self.latent_shape:
                width *= size
            self.consistency = Consistency(width, model)
        self.needs_future_obs = self.consistency is not None and bool(policy.ssl_loss_weight)

    def _build(self, model: ModelConfig, env: EnvSpec) -> None:
        shape = self.latent_shape
        one_hot = model.discrete_action_encoding_type == "one_hot"
        self.dynamics = Dynamics(model, shape, ActionEncoder(env.action, plane_of(shape), one_hot))
        norm = need(model.norm_type, "policy.model.norm_type")
        self.reward_stem = Stem(shape, norm, deep=model.res_connection_in_dynamics)
        self.reward_head = categorical_head(self.reward_stem.width, model, self.reward_support.size)
        self.prediction = Prediction(model, shape, env.action, self.value_support.size)

    def initial_inference(self, history: History) -> RootOutput:
        """Root from the newest observation alone."""
        return self.root(self.representation(history.obs[:, -1]))

    def root(self, latent: Tensor) -> RootOutput:
        """Policy, value and search state of a root latent."""
        policy, value = self.prediction(latent)
        return RootOutput(policy, self.value_support.decode(value), {"latent": latent})

    def recurrent_inference(self, state: LatentState, action: Tensor) -> StepOutput:
        """One step of the learned dynamics; reward and value on the raw scale."""
        latent = self.dynamics(state["latent"], action)
        reward = self.reward_head(self.reward_stem(latent))
        policy, value = self.prediction(latent)
        reward, value = decode_pair(self.reward_support, reward, self.value_support, value)
        return StepOutput(reward, policy, value, {"latent": latent})

    def reward_logits(self, latents: Tensor) -> Tensor:
        """Reward logits [B, T, S] of the unrolled latents [B, T, *latent_shape]."""
        logits: Tensor = over_steps(lambda x: self.reward_head(self.reward_stem(x)), latents)
        return logits

    def node_store(self, root: RootOutput, num_simulations: int) -> PoolStore:
        """A pool of latents, one slot per node."""
        return PoolStore(self.recurrent_inference, root, num_simulations)

    def unroll(self, batch: SampleBatch) -> UnrollOutput:
        """Encode o_t, then T steps of dynamics; with consistency also encode o_{t+1..t+T}."""
        latents = [self.representation(batch.obs[:, 0])]
        for k in range(batch.action.shape[1]):
            start = scale_gradient(latents[-1], self.grad_scale)
            latents.append(self.dynamics(start, batch.action[:, k]))
        stacked = torch.stack(latents, 1)
        policy, value = over_steps(self.prediction, stacked)
        extras = self.consistency_extras(stacked[:, 1:], batch)
        return UnrollOutput(policy, value, self.reward_logits(stacked[:, 1:]), stacked, extras)

    def consistency_extras(
        self, predicted: Tensor, batch: SampleBatch, encoded: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Projected predicted and encoded latents [B, T, d] for the consistency loss.

        Args:
            encoded: latents of o_{t+1..t+T}, [B, T, *latent_shape], where the caller has them.
        """
        consistency = self.consistency
        if consistency is None or not self.needs_future_obs:
            return {}
        with torch.no_grad():
            if encoded is None:
                encoded = over_steps(self.representation, batch.obs[:, 1:])
            target = over_steps(consistency.target, encoded)
        return {"ssl_online": over_steps(consistency.online, predicted), "ssl_target": target}
