"""MuZero whose root is an unrolled latent between re-encodings (UniZero paper, baseline "MuZero context")."""

from __future__ import annotations

import torch

from zero_tune.config import PolicyConfig
from zero_tune.models.latent import LatentModel
from zero_tune.types import EnvSpec, History, RootOutput


class ContextModel(LatentModel):
    """``muzero_context``: trained as MuZero; only the root differs.

    At steps 0, L, 2L, ... of an episode (L = ``context_length_init``) the root is the encoded observation;
    in between it is the last encoded one, advanced by the actions really taken. The root is recomputed
    from the raw history each time, so no latent outlives the weights that made it.
    """

    def __init__(self, policy: PolicyConfig, env: EnvSpec) -> None:
        super().__init__(policy, env)
        self.history_length = policy.model.context_length_init

    def initial_inference(self, history: History) -> RootOutput:
        """Root of the newest step."""
        length = self.history_length
        age = torch.minimum(torch.remainder(history.timestep, length), history.length - 1).clamp(
            min=0
        )
        rows = torch.arange(history.obs.shape[0], device=history.obs.device)
        first = length - 1 - age
        latent = self.representation(history.obs[rows, first])
        for k in range(length - 1):
            index = (first + k).clamp(max=length - 1)
            moved = self.dynamics(latent, history.action[rows, index])
            going = (age > k).view(-1, *([1] * (latent.dim() - 1)))
            latent = torch.where(going, moved, latent)
        return self.root(latent)
