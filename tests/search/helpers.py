"""Building searches and scalar models for the tests of this folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference.tree_search import Model, Step
from tests.search.table_world import TableWorld
from zero_tune.config import ModelConfig, PolicyConfig
from zero_tune.ops.rng import row_generators
from zero_tune.search.search import GivenDraws, TreeSearch, build_search
from zero_tune.types import ActionSpec, Array, EnvSpec, SearchResult

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    return cases


def make_search(
    size: int,
    *,
    rule: str = "puct",
    sampled: int = 0,
    continuous: bool = False,
    codes: int = 0,
    **policy: Any,
) -> TreeSearch:
    """A search over ``size`` actions (or dimensions), with ``sampled`` candidates if > 0."""
    values: dict[str, Any] = {"num_simulations": 16, "discount_factor": 0.997}
    values |= {"num_of_sampled_actions": sampled or None} | policy
    model = ModelConfig(chance_space_size=codes or None)
    config = dataclasses.replace(PolicyConfig(model=model), **values)
    kind = "continuous" if continuous else "discrete"
    env = EnvSpec("table", (4,), "float32", ActionSpec(kind, size))
    proposal = "sample" if sampled else "enumerate"
    return build_search(config, env, proposal=proposal, rule=rule)


def run(
    search: TreeSearch,
    world: TableWorld,
    states: Any,
    *,
    legal: Any = None,
    to_play: Any = None,
    seed: int = 0,
    explore: bool = False,
    given: GivenDraws | None = None,
    **kwargs: Any,
) -> SearchResult:
    """Search from table-world states; ``legal`` lists action ids, or is a mask [B, A]."""
    batch = len(states)
    return search.run(
        world,
        world.roots(states),
        legal_mask(batch, world, legal),
        np.full(batch, -1, np.int8) if to_play is None else np.asarray(to_play, np.int8),
        generators(batch, seed),
        explore=explore,
        given=given,
        **kwargs,
    )


def generators(batch: int, seed: int = 0) -> Array:
    return row_generators(seed, np.arange(batch), np.zeros(batch))


def legal_mask(batch: int, world: TableWorld, legal: Any) -> Array:
    if world.continuous:
        return np.zeros((batch, 0), np.bool_)
    if isinstance(legal, np.ndarray):
        return legal
    mask = np.zeros((batch, world.num_actions), np.bool_)
    mask[:, range(world.num_actions) if legal is None else legal] = True
    return mask


def scalar_model(world: TableWorld) -> Model:
    """The same world one state at a time; a state is (s, is chance, depth, prefix)."""
    single = dataclasses.replace(world, calls=[])

    def model(state: Any, action: Any) -> Step:
        s, chance, depth, prefix = state
        store = single.node_store(single.roots(np.array([s])), 1)
        store.chance[0], store.depth[0], store.prefix[0] = chance, depth, prefix
        chosen = np.atleast_2d(np.asarray(action))
        out = store.expand(1, np.zeros(1, np.int32), chosen)
        after = (store.state[1, 0], store.chance[1, 0], store.depth[1, 0], store.prefix[1, 0])
        return Step(
            float(out.reward[0]),
            float(out.value[0]),
            [float(x) for x in out.policy[0]],
            after,
            bool(store.chance[1, 0]),
        )

    return model


def root_state(s: int) -> tuple[int, bool, int, float]:
    """The scalar model's state of a root."""
    return (s, False, 0, 0.0)


def enumerate_all(width: int) -> Any:
    """The reference's proposal for enumerated actions."""

    def propose(policy: Any) -> tuple[list[int], list[float]]:
        return list(range(width)), list(policy)[:width]

    return propose


def trace_of(search: TreeSearch) -> list[list[list[int]]]:
    """[S][B] of [parent node, action, depth] of the last run (discrete actions)."""
    assert search.last_run is not None
    parent, action = search.last_run.arrays["parent"], search.last_run.arrays["action"]
    simulations, batch = parent.shape
    depth = np.zeros((simulations + 1, batch), np.int64)
    rows = np.arange(batch)
    out = []
    for k in range(simulations):
        depth[k + 1] = depth[parent[k], rows] + 1
        step = np.stack([parent[k], action[k, :, 0], depth[k + 1]], axis=1)
        out.append(step.tolist())
    return out
