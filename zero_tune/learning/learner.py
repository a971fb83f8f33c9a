"""The one learner: any world model, any loss terms."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zero_tune.config import PolicyConfig, need
from zero_tune.errors import NonFiniteError, SnapshotMismatch
from zero_tune.learning.entropy import AdaptiveEntropy
from zero_tune.learning.losses import Losses
from zero_tune.learning.optim import build_optimizer
from zero_tune.models.inference import InferenceModel
from zero_tune.ops.schedules import lr_factor
from zero_tune.types import EnvSpec, LossOutput, SampleBatch, Snapshot, UnrollOutput


class Learner:
    """Owns the model, the target model, the optimiser and the counters.

    Args:
        model: trained in place.
        losses: terms with their weights.
        policy: schedules, clipping, target updates.
        seed: unused by the update itself; kept for dropout.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        policy: PolicyConfig,
        *,
        env: EnvSpec,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.model, self.losses, self.policy = model, losses, policy
        self.device = torch.device(device)
        self.target = copy.deepcopy(model).eval().requires_grad_(False)
        self.optimizer = build_optimizer(model, policy)
        self.train_iter = 0
        self.target_version = 0
        self.history_length: int = model.history_length  # type: ignore[assignment]
        self._num_unroll = need(policy.num_unroll_steps, "policy.num_unroll_steps")
        self._clip = need(policy.grad_clip_value, "policy.grad_clip_value")
        self._params = [p for p in model.parameters() if p.requires_grad]
        self._inference: InferenceModel | None = None
        self._inference_version = -1
        self._dropout = torch.Generator().manual_seed(seed)
        self._value_support: Any = model.value_support
        self.entropy = None
        if policy.adaptive_entropy and "entropy" in losses and env.action.kind == "discrete":
            self.entropy = AdaptiveEntropy(policy, env.action.size)

    @property
    def target_model(self) -> InferenceModel:
        """The target network for bootstrap values and reanalysis, brought up to date when used."""
        if self._inference is None:
            self._inference = InferenceModel(self.target, device=self.device)
            self._inference_version = self.target_version
        if self._inference_version != self.target_version:
            self._inference.load(self.target.state_dict(), self.target_version)
            self._inference_version = self.target_version
        return self._inference

    def update(self, batch: SampleBatch) -> LossOutput:
        """One optimiser step on ``batch``.

        Raises:
            NonFiniteError: naming the first of target, loss term, gradient or weight that is not finite;
                the weights are those before the step unless the step itself broke them.
        """
        self._check_targets(batch)
        self._set_lr()
        if not self.model.training:
            self.model.train()
        with self._seeded_dropout(), self._autocast():
            output: UnrollOutput = self.model.unroll(batch)  # type: ignore[operator]
        output = self._finish(output, batch)
        terms = {name: term(output, batch) for name, (term, _) in self.losses.items()}
        per_sample = torch.stack([self._weight(name) * loss for name, loss in terms.items()]).sum(0)
        total = (batch.weight * per_sample).mean()
        self.optimizer.zero_grad(set_to_none=True)
        (total / self._num_unroll).backward()
        norm = torch.nn.utils.clip_grad_norm_(self._params, self._clip, foreach=True)
        report = self._report(output, batch, terms, total, norm)
        self._clip_encoder(output)
        self.optimizer.step()
        self.train_iter += 1
        self._update_target()
        return report

    def _check_targets(self, batch: SampleBatch) -> None:
        for name in ("value", "reward"):
            if not bool(torch.isfinite(getattr(batch.targets, name)).all()):
                raise NonFiniteError(f"target/{name}", f"update {self.train_iter + 1}")

    def _weight(self, name: str) -> float:
        if name == "entropy" and self.entropy is not None:
            return self.entropy.alpha
        return self.losses[name][1]

    def _finish(self, output: UnrollOutput, batch: SampleBatch) -> UnrollOutput:
        extras = dict(output.extras)
        if "next_latent" in extras:
            with torch.no_grad():
                encoded = self.target.encode(batch.obs[:, 1:].flatten(0, 1))  # type: ignore[operator]
            extras["next_latent_target"] = encoded.view_as(extras["next_latent"])
        if self.policy.train_dtype == "float32":
            return output._replace(extras=extras)
        return UnrollOutput(
            output.policy.float(),
            output.value_logits.float(),
            output.reward_logits.float(),
            output.latent.float(),
            {name: x.float() for name, x in extras.items()},
        )

    def _report(
        self,
        output: UnrollOutput,
        batch: SampleBatch,
        terms: dict[str, Tensor],
        total: Tensor,
        norm: Tensor,
    ) -> LossOutput:
        targets = batch.targets
        with torch.no_grad():
            value = self._value_support.decode(output.value_logits)
            error = (value - targets.value).abs()
            if "next_latent" in output.extras:
                mask = targets.value_mask
                priority = (error * mask).sum(1) / mask.sum(1).clamp(min=1.0)
            else:
                priority = error[:, 0]
            clipped = self._value_support.clipped_share(targets.value)
            means = [loss.mean() for loss in terms.values()]
            # one transfer for all of them
            scalars = torch.stack([*means, total, norm, clipped]).tolist()
        names = [*(f"loss/{n}" for n in terms), "loss/total", "gradient"]
        for name, number in zip(names, scalars, strict=False):
            if not np.isfinite(number):
                raise NonFiniteError(name, f"update {self.train_iter + 1}")
        if self.entropy is not None:
            count = targets.policy_mask.sum().clamp(min=1.0)
            self.entropy.update(-terms["entropy"].sum() / count, self.train_iter)
        return LossOutput(
            total=scalars[len(terms)],
            terms=dict(zip(terms, scalars, strict=False)),
            priority=priority.cpu().numpy() + np.float32(1e-6),
            metrics={
                "grad_norm": scalars[-2],
                "lr": self.optimizer.param_groups[0]["lr"],
                "value_clipped_share": scalars[-1],
            },
        )

    def _clip_encoder(self, output: UnrollOutput) -> None:
        """Scale the encoder's final norm down when a latent grew past ``encoder_clip_value``."""
        limit = self.policy.encoder_clip_value
        scale = getattr(self.model, "latent_scale_parameters", None)
        if limit <= 0 or scale is None:
            return
        with torch.no_grad():
            largest = float(output.latent.flatten(2).norm(dim=-1).max())
            if largest > limit:
                for parameter in scale():
                    parameter.mul_(limit / largest)

    def _set_lr(self) -> None:
        base = need(self.policy.learning_rate, "policy.learning_rate")
        lr = base * lr_factor(self.policy, self.train_iter)
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _update_target(self) -> None:
        theta, every = self.policy.target_update_theta, self.policy.target_update_freq
        if theta is not None:
            with torch.no_grad():
                moved, towards = [], []
                theirs = self.model.state_dict()
                for name, target in self.target.state_dict().items():
                    if target.is_floating_point():
                        moved.append(target)
                        towards.append(theirs[name])
                    else:
                        target.copy_(theirs[name])
                torch._foreach_lerp_(moved, towards, theta)
            self.target_version += 1
        elif self.train_iter % need(every, "policy.target_update_freq") == 0:
            self.target.load_state_dict(self.model.state_dict())
            self.target_version += 1

    def snapshot(self, envstep: int) -> Snapshot:
        """Immutable CPU copies of the model's weights and buffers.

        Raises:
            NonFiniteError: a weight is NaN or infinite.
        """
        state = {}
        for name, tensor in self.model.state_dict().items():
            array = tensor.detach().cpu().numpy().copy()
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise NonFiniteError(f"weight {name}", f"after update {self.train_iter}")
            array.flags.writeable = False
            state[name] = array
        return Snapshot(self.train_iter, envstep, state)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs, tensors and plain Python only."""
        return {
            "model": self.model.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "train_iter": self.train_iter,
            "target_version": self.target_version,
            "dropout": self._dropout.get_state(),
            "entropy": None if self.entropy is None else self.entropy.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``; values that come from the config are set anew.

        Raises:
            SnapshotMismatch: the state belongs to another model.
        """
        try:
            self.model.load_state_dict(state["model"])
            self.target.load_state_dict(state["target"])
        except RuntimeError as error:
            raise SnapshotMismatch(f"learner state does not fit the model: {error}") from error
        self.optimizer.load_state_dict(state["optimizer"])
        self.train_iter = int(state["train_iter"])
        self.target_version = int(state["target_version"])
        self._inference_version = -1
        self._dropout.set_state(state["dropout"])
        if self.entropy is not None and state["entropy"] is not None:
            self.entropy.load_state_dict(state["entropy"])
        self.apply_config(self.policy)

    def apply_config(self, policy: PolicyConfig) -> None:
        """Make config-driven optimiser values those of ``policy`` (a mutated learning rate counts)."""
        self.policy = policy
        self._clip = need(policy.grad_clip_value, "policy.grad_clip_value")
        fresh = build_optimizer(self.model, policy)
        for group, new in zip(self.optimizer.param_groups, fresh.param_groups, strict=True):
            for name, value in new.items():
                if name != "params":
                    group[name] = value
        self._set_lr()

    def _autocast(self) -> Any:
        dtype = getattr(torch, self.policy.train_dtype)
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    @contextmanager
    def _seeded_dropout(self) -> Iterator[None]:
        """Dropout draws from the learner's own generator, so that a resumed run repeats it."""
        if not self.policy.model.dropout:
            yield
            return
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._dropout.get_state())
            yield
            self._dropout.set_state(torch.get_rng_state())
