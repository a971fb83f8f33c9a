"""Searches of the token model: speed and memory, beside one that recomputes its window.

    python -m benchmarks.unizero

The recomputing search keeps the tokens of each node's window and passes all of them through the transformer
twice per simulation, in torch. Up to width 128 the search itself runs compiled (``TokenKernel``); "in torch"
is its time without that.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.search import best_of
from zero_tune.models.inference import InferenceModel
from zero_tune.models.store import PoolStore
from zero_tune.models.token_model import TokenModel, interleave
from zero_tune.models.token_store import STEP_TOKENS
from zero_tune.models.transformer import additive, band_mask
from zero_tune.ops.rng import row_generators
from zero_tune.ops.support import decode_pair
from zero_tune.policies import build_search
from zero_tune.presets import resolve
from zero_tune.types import ActionSpec, EnvSpec, History, StepOutput

ENV = EnvSpec("vector", (4,), "float32", ActionSpec("discrete", 2))


@dataclass(frozen=True)
class Case:
    """One model and search."""

    width: int
    layers: int
    simulations: int
    unroll: int
    roots: int = 8


CASES = (
    Case(64, 2, 25, 5),
    Case(64, 2, 25, 10),
    Case(128, 2, 50, 5),
    Case(256, 2, 50, 5),
    Case(256, 2, 50, 10),
)


class InTorch(TokenModel):
    """A token model that is not compiled."""

    def compiled_step(self) -> None:
        """Nothing."""


def recomputing(policy: Any, env: EnvSpec) -> TokenModel:
    """A token model whose latent state is the tokens of its window, not their keys and values."""
    import torch
    from torch.nn import functional

    class Recomputing(InTorch):
        store: Any = PoolStore

        def initial_inference(self, history: History) -> Any:
            root = super().initial_inference(history)
            latent = self.encode(history.obs.flatten(0, 1)).unflatten(0, (-1, self.history_length))
            tokens = interleave(latent, self.action_embedding(history.action[:, :-1]))
            missing = self.window - (2 * self.history_length)
            tokens = functional.pad(tokens[:, max(0, -missing) :], (0, 0, max(0, missing), 0))
            state = {k: v for k, v in root.state.items() if k != "keys_values"}
            return root._replace(state={"tokens": tokens, **state})

        def recurrent_inference(self, state: Any, action: Any, latent: Any = None) -> Any:
            mask = functional.pad(state["mask"], (0, STEP_TOKENS))
            tokens, position = state["tokens"], state["position"]
            tokens = torch.cat([tokens, self.action_embedding(action)[:, None]], 1)
            reward, predicted = self.action_heads(self._pass(tokens, mask[:, :-1], position + 1))
            tokens = torch.cat([tokens[:, 1:], self.next_norm(predicted)[:, None]], 1)
            out = self._pass(tokens, mask[:, 1:], position + 2)
            policy_, value = self._observation_outputs(out)
            successor = {
                "tokens": tokens[:, 1:],
                "mask": mask[:, STEP_TOKENS:],
                "position": position + STEP_TOKENS,
            }
            reward, value = decode_pair(self.reward_support, reward, self.value_support, value)
            return StepOutput(reward, policy_, value, successor)

        def _pass(self, tokens: Any, mask: Any, newest: Any) -> Any:
            index = torch.arange(self.window, device=tokens.device)
            position = (newest[:, None] - (self.window - 1) + index).clamp(min=0)
            causal = additive(band_mask(index, self.window), tokens.dtype)
            seen = causal + mask[:, None, :]
            seen = seen.masked_fill(torch.eye(self.window, dtype=torch.bool), 0.0)
            out, _ = self.transformer(tokens, position, seen[:, None], newest=True)
            return out[:, -1]

    return Recomputing(policy, env)


def measure(case: Case, repeats: int) -> str:
    """One table row."""
    import torch

    user = {
        "type": "unizero",
        "num_unroll_steps": case.unroll,
        "num_simulations": case.simulations,
        "model": {"embed_dim": case.width, "num_layers": case.layers},
    }
    config, _ = resolve({"policy": user}, ENV)
    torch.manual_seed(0)
    cached = TokenModel(config.policy, ENV)
    models = (cached, InTorch(config.policy, ENV), recomputing(config.policy, ENV))
    for model in models[1:]:
        model.load_state_dict(cached.state_dict())
    length = cached.history_length
    history = History(
        torch.randn(case.roots, length, 4),
        torch.zeros(case.roots, length, 1, dtype=torch.int64),
        torch.full((case.roots,), length),
        torch.full((case.roots,), length - 1),
    )
    seconds, values, held = [], [], 0
    for model in models:
        inference, search = InferenceModel(model), build_search(config.policy, ENV)
        legal, to_play = np.ones((case.roots, 2), np.bool_), np.full(case.roots, -1, np.int8)

        def whole(inference: Any = inference, search: Any = search) -> Any:
            rng = row_generators(0, np.arange(case.roots), np.zeros(case.roots))
            root = inference.initial_inference(history)
            return search.run(inference, root, legal, to_play, rng, explore=False)  # noqa: B023

        values.append(whole().root_value)
        seconds.append(best_of(whole, repeats))
        if model is cached:
            root = inference.initial_inference(history)
            held = inference.node_store(root, case.simulations).num_bytes
    assert np.allclose(values[0], values[1:], atol=1e-4), "the searches start from one root"
    shape = f"{case.width} | {case.layers} | {cached.window} | {case.roots} | {case.simulations}"
    rate = case.roots * case.simulations / seconds[0]
    own, torch_, slow = (x * 1e3 for x in seconds)
    return (
        f"| {shape} | {own:.1f} | {rate:,.0f} | {torch_:.1f} | {slow:.1f} | {slow / own:.1f} | "
        f"{held / 2**20:.2f} |"
    )


def main() -> None:
    """Print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="the fastest of so many counts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{describe('torch', 'numba')}, one thread\n")
    print("| width | layers | window | roots | simulations | ms | simulations/s | ", end="")
    print("in torch, ms | recomputing, ms | ratio | store, MiB |")
    print("|" + " --- |" * 11)
    for case in CASES:
        print(measure(case, args.repeats), flush=True)


if __name__ == "__main__":
    main()
