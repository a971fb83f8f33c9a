"""The node store of token models: each node keeps its own two tokens, and where the rest of its path is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from zero_tune.types import Array, RootOutput, StepOutput

if TYPE_CHECKING:
    from zero_tune.models.store import StepFunction

#: Tokens a simulated step appends: the action, then the latent it leads to.
STEP_TOKENS = 2


class TreeStore:
    """Keys and values of one batch of trees, addressed by node number.

    A node's state is the window of the last n tokens before it (``TokenModel.recurrent_inference``).
    Neighbouring nodes share nearly all of theirs, so every token is stored once, in a slot that is never
    written again, and a node remembers the slots of its window. There is nothing to look up, evict or
    overflow, and the state gathered for a node equals the one ``PoolStore`` would have kept whole.

    Args:
        step: the model's ``recurrent_inference``; None where a subclass appends its tokens another way.
        root: its state becomes node 0.
        num_simulations: nodes beside the root.
    """

    def __init__(self, step: StepFunction | None, root: RootOutput, num_simulations: int) -> None:
        self._step = step
        window, mask = root.state["keys_values"], root.state["mask"]
        rows, size = mask.shape
        self._inference = window.is_inference()
        seen = np.isfinite(mask.float().cpu().numpy())
        used = int(seen.sum(1).max())  # the window is filled from the right
        slots = used + STEP_TOKENS * num_simulations
        with torch.inference_mode(self._inference):
            self._pool = window.new_empty((rows, slots, *window.shape[2:]))
            self._pool[:, :used] = window[:, size - used :]
            self._flat = self._pool.flatten(0, 1)
        self._first = used  # slot of node 1's action token
        self._row = np.arange(rows)
        self._base = self._row[:, None] * slots  # [R, 1] index of a row's slot 0 in the flat pool
        self._own = np.arange(STEP_TOKENS)
        self._path = np.zeros(
            (num_simulations + 1, rows, size), np.int64
        )  # indices into the flat pool
        self._path[0] = np.maximum(np.arange(size) - (size - used), 0) + self._base
        self._mask = np.zeros((num_simulations + 1, rows, size), np.float32)
        self._mask[0] = np.where(seen, np.float32(0.0), np.float32(-np.inf))
        self._position = np.zeros((num_simulations + 1, rows), np.int64)
        self._position[0] = root.state["position"].cpu().numpy()

    @property
    def num_bytes(self) -> int:
        """Memory held for keys, values and index tables."""
        tables = self._path.nbytes + self._mask.nbytes + self._position.nbytes
        return self._pool.nbytes + tables

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        """Network output for one new node per tree; see ``interfaces.NodeStore``."""
        path, mask = self._path[parent, self._row], self._mask[parent, self._row]
        position = self._position[parent, self._row]
        slot = self._first + STEP_TOKENS * (node - 1)
        with torch.inference_mode(self._inference):
            output = self._append(path, mask, position, slot, action)
        self._path[node, :, :-STEP_TOKENS] = path[:, STEP_TOKENS:]
        self._path[node, :, -STEP_TOKENS:] = self._base + (slot + self._own)
        self._mask[node, :, :-STEP_TOKENS] = mask[:, STEP_TOKENS:]
        self._position[node] = position + STEP_TOKENS
        return output

    def _append(
        self, path: Array, mask: Array, position: Array, slot: int, action: Array
    ) -> StepOutput:
        """Run the step, and put its two tokens into ``slot`` and the one after it."""
        device = self._pool.device
        index = torch.from_numpy(path).to(device)
        window = self._flat.index_select(0, index.flatten())
        state = {
            "keys_values": window.view(*path.shape, *self._flat.shape[1:]),
            "mask": torch.from_numpy(mask).to(device, self._pool.dtype),
            "position": torch.from_numpy(position).to(device),
        }
        assert self._step is not None
        output = self._step(state, torch.from_numpy(action).to(device))
        own = output.state["keys_values"][:, -STEP_TOKENS:]
        self._pool[:, slot : slot + STEP_TOKENS] = own
        return output
