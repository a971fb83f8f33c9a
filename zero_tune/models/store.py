"""The default node store: one latent state per node, in preallocated pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from zero_tune.types import Array, LatentState, RootOutput, StepOutput

if TYPE_CHECKING:
    StepFunction = Callable[[LatentState, Tensor], StepOutput]


class PoolStore:
    """Latent states of a batch of trees, [N, B, ...] per tensor.

    Node k of every tree is made by simulation k, so a slot is written once, whole and contiguous.

    Args:
        step: the model's ``recurrent_inference``; called once per ``expand``.
        root: its states become node 0.
        num_simulations: nodes beside the root.
    """

    def __init__(self, step: StepFunction, root: RootOutput, num_simulations: int) -> None:
        self._step = step
        first = next(iter(root.state.values()))
        self._batch, self._device = first.shape[0], first.device
        self._pools: dict[str, Tensor] = {}
        for name, tensor in root.state.items():
            pool = torch.empty(
                (num_simulations + 1, *tensor.shape), dtype=tensor.dtype, device=tensor.device
            )
            pool[0] = tensor
            self._pools[name] = pool
        self._inference = first.is_inference()
        self._columns = np.arange(self._batch, dtype=np.int64)

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        """Network output for one new node per tree; see ``interfaces.NodeStore``."""
        index = torch.from_numpy(parent * np.int64(self._batch) + self._columns)
        if self._device.type != "cpu":
            index = index.to(self._device)
        with torch.inference_mode(self._inference):
            state = {
                name: pool.flatten(0, 1).index_select(0, index)
                for name, pool in self._pools.items()
            }
            output = self._step(state, torch.from_numpy(action).to(self._device))
            for name, pool in self._pools.items():
                pool[node] = output.state[name]
        return output
