"""Speed of the tree search: ``python -m benchmarks.search [--models]``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.machine import describe
from zero_tune.config import ModelConfig, PolicyConfig
from zero_tune.ops.rng import row_generators
from zero_tune.search.kernels import step
from zero_tune.search.search import TreeSearch, build_search
from zero_tune.types import ActionSpec, Array, EnvSpec, RootOutput, StepOutput

NEVER = np.empty(0, np.bool_)


@dataclass(frozen=True)
class Case:
    """One shape and kind of search."""

    name: str
    roots: int = 8
    size: int = 6  # actions, or dimensions of a continuous one
    simulations: int = 50
    rule: str = "puct"
    sampled: int = 0
    continuous: bool = False
    codes: int = 0


CASES = (
    Case("puct"),
    Case("puct", roots=1),
    Case("puct", roots=64),
    Case("puct", roots=256),
    Case("puct", size=18),
    Case("puct", size=82),
    Case("puct", simulations=400),
    Case("gumbel", rule="gumbel"),
    Case("gumbel", rule="gumbel", size=18),
    Case("chance, 6 codes", codes=6),
    Case("sampled, 6 of 6", sampled=6),
    Case("sampled, 6 of 18", sampled=6, size=18),
    Case("sampled, 6 continuous", sampled=6, size=1, continuous=True),
    Case("gumbel, 6 continuous", rule="gumbel", sampled=6, size=1, continuous=True),
)


class Replay:
    """A model whose outputs were drawn beforehand, so that only the search takes time."""

    def __init__(self, case: Case) -> None:
        rng, rows = np.random.default_rng(0), case.roots
        width = 2 * case.size if case.continuous else max(case.size, case.codes)
        self.outputs: list[Any] = []
        for _ in range(case.simulations + 1):
            policy = rng.normal(size=(rows, width)).astype(np.float32)
            if case.continuous:
                policy[:, case.size :] = np.exp(policy[:, case.size :])
            reward = rng.normal(size=rows, scale=0.1).astype(np.float32)
            self.outputs.append((reward, policy, rng.normal(size=rows).astype(np.float32)))
        self.case, self.rows = case, np.arange(rows)

    def root(self) -> RootOutput:
        """Output 0."""
        return RootOutput(self.outputs[0][1], self.outputs[0][2], {})

    def node_store(self, root: RootOutput, num_simulations: int) -> Replay:
        """This object, with no node yet a chance node."""
        self.chance = np.zeros((num_simulations + 1, len(self.rows)), np.bool_)
        return self

    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        """Output ``node``."""
        reward, policy, value = self.outputs[node]
        flags: Any = None
        if self.case.codes:
            flags = self.chance[node] = ~self.chance[parent, self.rows]
        return StepOutput(reward, policy, value, {}, flags)


def build(case: Case) -> TreeSearch:
    """The search of a case."""
    policy = replace(
        PolicyConfig(model=ModelConfig(chance_space_size=case.codes or None)),
        num_simulations=case.simulations,
        discount_factor=0.997,
        num_of_sampled_actions=case.sampled or None,
    )
    kind = "continuous" if case.continuous else "discrete"
    env = EnvSpec("replay", (4,), "float32", ActionSpec(kind, case.size))
    proposal = "sample" if case.sampled else "enumerate"
    return build_search(policy, env, proposal=proposal, rule=case.rule)


def best_of(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of ``repeats`` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def tree_row(case: Case, repeats: int) -> str:
    """One table row: kernels alone, and the whole of ``run`` less the model's own time."""
    search, model = build(case), Replay(case)
    rng = row_generators(0, np.arange(case.roots), np.zeros(case.roots))
    legal = np.ones((case.roots, 0 if case.continuous else case.size), np.bool_)
    to_play = np.full(case.roots, -1, np.int8)

    def whole() -> None:
        search.run(model, model.root(), legal, to_play, rng, explore=True)

    def model_only() -> None:
        store, parent = model.node_store(model.root(), case.simulations), np.zeros_like(model.rows)
        for node in range(1, case.simulations + 1):
            store.expand(node, parent, parent)

    whole()
    assert search.last_run is not None
    record = search.last_run.record
    flags = [row if case.codes else NEVER for row in model.chance]

    def kernels() -> None:
        for node, (reward, policy, value) in enumerate(model.outputs):
            step(record, node, reward, policy, value, flags[node])

    scale = 1e6 / (case.roots * case.simulations)
    inner = best_of(kernels, repeats) * scale
    outer = (best_of(whole, repeats) - best_of(model_only, repeats)) * scale
    shape = f"{case.roots} | {case.size} | {case.simulations}"
    return f"| {case.name} | {shape} | {inner:.2f} | {outer:.2f} |"


@dataclass(frozen=True)
class ModelCase:
    """A real model's search."""

    name: str
    env: EnvSpec
    policy: dict[str, Any]


_PONG = EnvSpec("pong", (1, 64, 64), "uint8", ActionSpec("discrete", 6), family="atari")
_CARTPOLE = EnvSpec("cartpole", (4,), "float32", ActionSpec("discrete", 2))
_PENDULUM = EnvSpec("pendulum", (3,), "float32", ActionSpec("continuous", 1))
MODEL_CASES = (
    ModelCase("muzero conv", _PONG, {"type": "muzero"}),
    ModelCase("efficientzero conv", _PONG, {"type": "efficientzero"}),
    ModelCase("gumbel_muzero conv", _PONG, {"type": "gumbel_muzero"}),
    ModelCase("muzero MLP", _CARTPOLE, {"type": "muzero"}),
    ModelCase("gumbel_muzero MLP", _CARTPOLE, {"type": "gumbel_muzero"}),
    ModelCase("stochastic_muzero MLP", _CARTPOLE, {"type": "stochastic_muzero"}),
    ModelCase("sampled_muzero MLP", _PENDULUM, {"type": "sampled_muzero"}),
    ModelCase("unizero MLP", _CARTPOLE, {"type": "unizero"}),
)


def model_row(case: ModelCase, roots: int, simulations: int, repeats: int) -> str:
    """One table row: initial inference and search of ``roots`` roots."""
    import torch

    from zero_tune.models.inference import InferenceModel
    from zero_tune.policies import build_search as build_policy_search
    from zero_tune.policies import seeded_model
    from zero_tune.presets import resolve
    from zero_tune.types import History

    config, env = resolve({"policy": case.policy}, case.env)
    model = seeded_model(config.policy, env, seed=0)
    inference = InferenceModel(model)
    search = build_policy_search(config.policy, env)
    frames, length = config.policy.model.frame_stack_num or 1, inference.history_length
    shape = (frames * env.obs_shape[0], *env.obs_shape[1:])
    generator = torch.Generator().manual_seed(0)
    obs = torch.rand((roots, length, *shape), generator=generator)
    if env.obs_dtype == "uint8":
        obs = (obs * 255).to(torch.uint8)
    action_dtype = torch.int64 if env.action.kind == "discrete" else torch.float32
    history = History(
        obs,
        torch.zeros((roots, length, env.action.dim), dtype=action_dtype),
        torch.full((roots,), length),
        torch.full((roots,), length - 1),
    )
    legal = np.ones((roots, env.action.size if env.action.kind == "discrete" else 0), np.bool_)
    to_play = np.full(roots, -1, np.int8)
    rng = row_generators(0, np.arange(roots), np.zeros(roots))

    def whole() -> None:
        search.run(
            inference,
            inference.initial_inference(history),
            legal,
            to_play,
            rng,
            explore=True,
            num_simulations=simulations,
        )

    whole()
    seconds = best_of(whole, repeats)
    return (
        f"| {case.name} | {roots} | {simulations} | {seconds * 1e3:.1f} | {roots / seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, help="the fastest of so many counts")
    parser.add_argument("--models", action="store_true", help="also whole searches, real models")
    args = parser.parse_args()
    print(f"{describe('numpy', 'numba')}, one thread")
    print("\nTree alone, microseconds per simulation and root:\n")
    print("| search | roots | actions | simulations | kernels | whole `run` less the model |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        print(
            tree_row(case, max(3, args.repeats * 50 // case.simulations // max(1, case.roots // 8)))
        )
    if not args.models:
        return
    import torch

    torch.set_num_threads(1)
    print(f"\nInitial inference and search, torch {torch.__version__}:\n")
    print("| model | roots | simulations | ms | env steps/s |")
    print("| --- | --- | --- | --- | --- |")
    for model_case in MODEL_CASES:
        print(model_row(model_case, 8, 50, max(3, args.repeats // 20)))


if __name__ == "__main__":
    main()
