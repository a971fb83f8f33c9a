"""From the replay buffer to a learner batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zero_tune.config import PolicyConfig, need
from zero_tune.learning.augment import augment
from zero_tune.learning.reanalyze import Reanalyzer, read_history
from zero_tune.learning.targets import (
    TargetSettings,
    WindowTargets,
    bootstrap_index,
    make_targets,
    needs_bootstrap,
)
from zero_tune.types import Array, EnvSpec, History, PolicyTarget, SampleBatch, Targets, Window

if TYPE_CHECKING:
    from zero_tune.interfaces import Search
    from zero_tune.learning.learner import Learner
    from zero_tune.replay.buffer import ReplayBuffer


class BootstrapValues:
    """Target-network values of stored states, computed once per state and target version."""

    def __init__(self, buffer: ReplayBuffer, learner: Learner, chunk: int) -> None:
        self._buffer, self._learner, self._chunk = buffer, learner, chunk
        self._value = np.zeros(buffer.capacity, np.float32)
        self._generation = np.full(buffer.capacity, -1, np.int64)
        self._version = -1
        self.evaluated_total = 0

    def __call__(self, rows: Array) -> Array:
        """[...] f32 values of the states at ``rows``."""
        if self._version != self._learner.target_version:
            self._generation.fill(-1)
            self._version = self._learner.target_version
        missing = np.unique(rows[self._generation[rows] != self._buffer.generation_of(rows)])
        for start in range(0, len(missing), self._chunk):
            part = missing[start : start + self._chunk]
            root = self._learner.target_model.initial_inference(read_history(self._buffer, part))
            self._value[part] = root.value.cpu().numpy()
            self._generation[part] = self._buffer.generation_of(part)
        self.evaluated_total += len(missing)
        out: Array = self._value[rows]
        return out


class BatchMaker:
    """Samples rows, computes targets, and packs tensors.

    Args:
        learner: owns the target network, the counters and the device.
        search: for fresh policy targets (``reanalyze_ratio``).
        rng: draws the rows; part of the resume state.
        value_prefix: reward targets are running sums.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        env: EnvSpec,
        buffer: ReplayBuffer,
        learner: Learner,
        search: Search,
        *,
        rng: np.random.Generator,
        seed: int,
        value_prefix: bool = False,
    ) -> None:
        self.policy, self.env, self.buffer, self.learner = policy, env, buffer, learner
        self.rng = rng
        self.settings = TargetSettings(
            num_unroll_steps=need(policy.num_unroll_steps, "policy.num_unroll_steps"),
            td_steps=policy.td_steps,
            discount=need(policy.discount_factor, "policy.discount_factor"),
            truncation=policy.truncation,
            value_prefix_horizon=policy.model.lstm_horizon_len if value_prefix else None,
        )
        self.values = BootstrapValues(buffer, learner, policy.mini_infer_size)
        self.reanalyzer = Reanalyzer(policy, env, buffer, learner, search, seed=seed + 1)
        self._augment = torch.Generator().manual_seed(seed)
        self._future = bool(learner.model.needs_future_obs)
        self._past = bool(learner.model.needs_history)

    def make(self) -> SampleBatch:
        """One batch on the learner's device."""
        size = need(self.policy.batch_size, "policy.batch_size")
        sample = self.buffer.sample(size, self.rng)
        window = self._reanalyzed(self.buffer.window(sample.row))
        bootstrap = self._bootstrap(window)
        targets = make_targets(window, bootstrap, self.settings)
        return self._pack(window, targets, sample.weight)

    def _reanalyzed(self, window: Window) -> Window:
        count = int(len(window.row) * self.policy.reanalyze_ratio)
        if count == 0:
            return window
        order = np.arange(len(window.row))
        if self.policy.reanalyze_outdated:
            order = np.argsort(-self.buffer.age(window.row), kind="stable")
        chosen, states = order[:count], self.settings.num_unroll_steps + 1
        inside = np.arange(states)[None] < window.num_real[chosen, None]
        self.reanalyzer.refresh(window.rows[chosen, :states][inside])
        return self.buffer.window(window.row)

    def _bootstrap(self, window: Window) -> Array:
        index = bootstrap_index(window, self.settings)
        used = needs_bootstrap(window, self.settings)
        out = np.zeros(index.shape, np.float32)
        rows = np.take_along_axis(window.rows, index, 1)
        if self.policy.use_root_value:
            stored = np.take_along_axis(window.root_value, index, 1)
            inside = index < window.num_real[:, None]
            out[used & inside] = stored[used & inside]
            used = used & ~inside
        if used.any():
            out[used] = self.values(rows[used])
        return out

    def _pack(self, window: Window, targets: WindowTargets, weight: Array) -> SampleBatch:
        steps, device = self.settings.num_unroll_steps, self.learner.device

        def tensor(array: Array) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        candidates = window.candidates
        target = Targets(
            reward=tensor(targets.reward),
            value=tensor(targets.value),
            policy=PolicyTarget(
                None if candidates is None else tensor(candidates[:, : steps + 1]),
                tensor(window.weights[:, : steps + 1]),
            ),
            policy_mask=tensor(targets.policy_mask),
            value_mask=tensor(targets.value_mask),
            reward_mask=tensor(targets.reward_mask),
            state_mask=tensor(targets.state_mask),
            legal=tensor(window.legal[:, : steps + 1]),
        )
        chance = (
            None if window.chance is None else tensor(window.chance[:, :steps].astype(np.int64))
        )
        obs, history = self._observations(window, steps)
        return SampleBatch(
            obs=obs,
            action=tensor(self._actions(window, steps)),
            timestep=tensor(window.timestep[:, : steps + 1].astype(np.int64)),
            chance=chance,
            weight=tensor(weight),
            row=window.row,
            generation=window.generation,
            targets=target,
            train_iter=self.learner.train_iter,
            policy_version=window.policy_version,
            history=history,
        )

    def _observations(self, window: Window, steps: int) -> tuple[Tensor, History | None]:
        """Stacked observations of the window and of the history before it, augmented alike."""
        device = self.learner.device
        rows = window.rows[:, : steps + 1] if self._future else window.rows[:, :1]
        obs = torch.from_numpy(self.buffer.observations(rows)).to(device)
        history, before = None, 0
        if self._past:
            history = History(*(x.to(device) for x in read_history(self.buffer, window.row)))
            before = history.obs.shape[1]
            obs = torch.cat([history.obs, obs], 1)
        if self.policy.use_augmentation:
            obs = augment(obs, self.policy.augmentation, self._augment)
        if history is not None:
            history = history._replace(obs=obs[:, :before])
        return obs[:, before:], history

    def _actions(self, window: Window, steps: int) -> Array:
        """Actions taken; random ones past the end, where the state is absorbing."""
        action = window.action[:, :steps].copy()
        past = np.arange(steps)[None] >= window.num_real[:, None]
        count = int(past.sum())
        if count:
            if self.env.action.kind == "discrete":
                action[past] = self.rng.integers(0, self.env.action.size, (count, 1))
            else:
                action[past] = self.rng.uniform(-1.0, 1.0, (count, self.env.action.size))
        return action.astype(np.int64) if self.env.action.kind == "discrete" else action

    def state_dict(self) -> dict[str, Any]:
        """Generators and counters, plain Python and tensors."""
        return {
            "rng": self.rng.bit_generator.state,
            "augment": self._augment.get_state(),
            "reanalyzer": self.reanalyzer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.rng.bit_generator.state = state["rng"]
        self._augment.set_state(state["augment"])
        self.reanalyzer.load_state_dict(state["reanalyzer"])
