"""Inference-only models: folded, traced once, new weights copied in place.

A frozen trace would have to be rebuilt for every published snapshot. Here the trace refers to the folded
parameters, so loading a snapshot is a handful of in-place copies.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zero_tune.errors import SnapshotMismatch
from zero_tune.models.afterstate import join_branches
from zero_tune.models.folding import Folding
from zero_tune.models.store import PoolStore
from zero_tune.types import Array, History, LatentState, RootOutput, StepOutput


class InferenceModel:
    """Runs a world model for search, never for training.

    Args:
        model: the model to copy; not referenced afterwards.
        device: where inference runs.
        dtype: ``float32``, or ``bfloat16`` for faster but rounded networks.
    """

    def __init__(
        self, model: nn.Module, *, device: torch.device | str = "cpu", dtype: str = "float32"
    ) -> None:
        self.device = torch.device(device)
        self.history_length: int = model.history_length  # type: ignore[assignment]
        self.num_policy_params: int = model.num_policy_params  # type: ignore[assignment]
        self.version = -1
        self._dtype = getattr(torch, dtype)
        self._source = copy.deepcopy(model).to(self.device).eval().requires_grad_(False)
        self._traceable = bool(getattr(model, "traceable", False))
        self._fast = self._source
        self._folding: Folding | None = None
        if self._traceable:
            self._folding = Folding(self._source, self._dtype)
            self._fast = self._folding.model
        self._initial: Any = None
        self._branches: list[Any] = []
        self._state_names: list[str] = []
        compilable = self._folding is not None and dtype == "float32" and self.device.type == "cpu"
        self._compile = getattr(self._fast, "compiled_step", None) if compilable else None
        self._kernel: Any = None
        self._kernel_is_old = False

    def load(self, model_state: Mapping[str, Array | Tensor], version: int = -1) -> None:
        """Use the weights of one snapshot.

        Raises:
            SnapshotMismatch: names or shapes differ from the model's.
        """
        own = self._source.state_dict()
        _check_state(own, model_state)
        with torch.inference_mode():
            for name, tensor in own.items():
                value = model_state[name]
                tensor.copy_(value if isinstance(value, Tensor) else _as_tensor(value))
        self.version = version
        if self._folding is not None:
            self._folding.refresh()
        self._kernel_is_old = True
        self.clear_caches()

    def clear_caches(self) -> None:
        """Drop data derived from weights; outputs never depend on it."""
        clear = getattr(self._source, "clear_caches", None)
        if clear is not None:
            clear()

    def recompute_pos_emb_diff_and_clear_cache(self) -> None:
        """The hook called after every completed collect budget; drops derived data only."""
        self.clear_caches()

    @torch.inference_mode()
    def initial_inference(self, history: History) -> RootOutput:
        """See ``interfaces.WorldModel``."""
        if self.device.type != "cpu":
            history = History(*(x.to(self.device) for x in history))
        if not self._traceable:
            output: RootOutput = self._source.initial_inference(history)  # type: ignore[operator]
            return output
        if self._initial is None:
            self._trace(history)
        policy, value, *state = self._initial(*self._cast(history))
        return RootOutput(
            policy.float(), value.float(), dict(zip(self._state_names, state, strict=True))
        )

    def node_store(self, root: RootOutput, num_simulations: int) -> Any:
        """Node store whose ``expand`` makes one network call."""
        with torch.inference_mode():
            if not self._traceable:
                return self._source.node_store(root, num_simulations)  # type: ignore[operator]
            kernel = self._compiled_step()
            if kernel is not None:
                return kernel.node_store(root, num_simulations)
            store = getattr(self._fast, "store", PoolStore)
            return store(self._step, root, num_simulations)

    def _compiled_step(self) -> Any:
        """Refreshed when used: a target network gets new weights at every update, and hardly searches."""
        if self._compile is not None:
            self._kernel, self._compile = self._compile(), None
        elif self._kernel is not None and self._kernel_is_old:
            self._kernel.refresh()
        self._kernel_is_old = False
        return self._kernel

    def _step(self, state: LatentState, action: Tensor) -> StepOutput:
        if len(self._branches) == 1:
            return self._call(self._branches[0], state, action)
        decide, resolve = (partial(self._call, branch) for branch in self._branches)
        return join_branches(state, action, decide, resolve)

    def _call(self, traced: Any, state: LatentState, action: Tensor) -> StepOutput:
        out = traced(*(state[name] for name in self._state_names), action)
        count = len(self._state_names)
        reward, policy, value, *rest = out
        chance = rest[count] if len(rest) > count else None
        names = dict(zip(self._state_names, rest[:count], strict=True))
        return StepOutput(reward.float(), policy.float(), value.float(), names, chance)

    def _cast(self, history: History) -> History:
        obs = history.obs
        if self._dtype != torch.float32:
            obs = (obs.float() / 255.0 if obs.dtype == torch.uint8 else obs).to(self._dtype)
        return history._replace(obs=obs)

    def _trace(self, history: History) -> None:
        history = self._cast(history)
        root: RootOutput = self._fast.initial_inference(history)  # type: ignore[operator]
        self._state_names = sorted(root.state)
        self._initial = torch.jit.trace(
            _Initial(self._fast, self._state_names), tuple(history), check_trace=False
        )
        action = torch.zeros(
            (history.obs.shape[0], history.action.shape[-1]),
            dtype=history.action.dtype,
            device=self.device,
        )
        states = tuple(root.state[name] for name in self._state_names)
        names = getattr(self._fast, "branches", ("recurrent_inference",))
        self._branches = [
            torch.jit.trace(
                _Step(self._fast, name, self._state_names), (*states, action), check_trace=False
            )
            for name in names
        ]


class _Initial(nn.Module):
    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.names = names

    def forward(
        self, obs: Tensor, action: Tensor, length: Tensor, timestep: Tensor
    ) -> tuple[Tensor, ...]:
        root = self.model.initial_inference(History(obs, action, length, timestep))
        return (root.policy, root.value, *(root.state[n] for n in self.names))


class _Step(nn.Module):
    def __init__(self, model: nn.Module, method: str, names: list[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.method, self.names = method, names

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        *states, action = args
        step = getattr(self.model, self.method)
        out = step(dict(zip(self.names, states, strict=True)), action)
        chance = () if out.is_chance is None else (out.is_chance,)
        return (out.reward, out.policy, out.value, *(out.state[n] for n in self.names), *chance)


def _as_tensor(value: Array) -> Tensor:
    # arrays from an object store are read-only; the copy keeps torch from warning about it
    array = value if value.flags.writeable else value.copy()
    return torch.from_numpy(np.ascontiguousarray(array).reshape(value.shape))


def _check_state(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
    if set(own) != set(given):
        missing, extra = sorted(set(own) - set(given)), sorted(set(given) - set(own))
        raise SnapshotMismatch(
            f"weights do not fit the model: missing {missing[:3]}, unexpected {extra[:3]}"
        )
    for name, tensor in own.items():
        if tuple(tensor.shape) != tuple(given[name].shape):
            raise SnapshotMismatch(
                f"weights do not fit the model: {name} has shape {tuple(given[name].shape)}, "
                f"the model's is {tuple(tensor.shape)}"
            )
