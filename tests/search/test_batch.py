"""A row's result is its own: it does not depend on its batch, on earlier searches, or on the container."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.search.helpers import generators, make_search
from tests.search.table_world import TableStore, TableWorld
from zero_tune.search.search import TreeSearch
from zero_tune.types import Array, RootOutput, SearchResult, StepOutput

KINDS: dict[str, tuple[TableWorld, dict[str, Any]]] = {
    "puct": (TableWorld(6), {}),
    "two-players": (TableWorld(6), {}),
    "value-prefix": (TableWorld(6, horizon=5), {}),
    "gumbel": (TableWorld(6), {"rule": "gumbel"}),
    "chance": (TableWorld(4, num_codes=7), {"codes": 7}),
    "chance-drawn": (TableWorld(4, num_codes=7), {"codes": 7, "chance_selection": "sample"}),
    "sampled": (TableWorld(12), {"sampled": 5}),
    "sampled-continuous": (TableWorld(2, continuous=True), {"sampled": 6, "continuous": True}),
    "gumbel-sampled": (TableWorld(12), {"sampled": 5, "rule": "gumbel"}),
    "node-range": (TableWorld(6), {"q_normalization": "node", "unvisited_q": "min"}),
}


@dataclasses.dataclass
class WildNeighbours(TableWorld):
    """The table world, with values and rewards of row r multiplied by ``factors[r]``."""

    factors: Array = dataclasses.field(default_factory=lambda: np.ones(1, np.float32))

    def roots(self, states: Array) -> RootOutput:
        root = super().roots(states)
        return root._replace(value=root.value * self.factors)

    def node_store(self, root: RootOutput, num_simulations: int) -> WildStore:
        return WildStore(self, root, num_simulations)


class WildStore(TableStore):
    def expand(self, node: int, parent: Array, action: Array) -> StepOutput:
        out = super().expand(node, parent, action)
        assert isinstance(self.world, WildNeighbours)
        factors = self.world.factors
        return out._replace(value=out.value * factors, reward=out.reward * factors)


def wild(world: TableWorld, factors: Array) -> WildNeighbours:
    fields = {f.name: getattr(world, f.name) for f in dataclasses.fields(world)}
    return WildNeighbours(**(fields | {"calls": []}), factors=factors.astype(np.float32))


def search_rows(
    search: TreeSearch,
    world: TableWorld,
    states: list[int],
    factors: list[float],
    streams: list[int],
    two_players: bool = False,
) -> SearchResult:
    model = wild(world, np.array(factors))
    batch = len(states)
    rng = generators(100, seed=9)[streams].copy()
    if world.continuous:
        legal = np.zeros((batch, 0), np.bool_)
    else:
        legal = np.ones((batch, world.num_actions), np.bool_)
        legal[:, 1] = False
    return search.run(
        model,
        model.roots(np.array(states)),
        legal,
        np.full(batch, 2 if two_players else -1, np.int8),
        rng,
        explore=True,
        epsilon=0.2,
    )


def row_of(result: SearchResult, row: int) -> dict[str, Array]:
    fields = {
        "action": result.action,
        "weights": result.target.weights,
        "value": result.value,
        "visits": result.visit_counts,
        "entropy": result.entropy,
        "prior": result.root_policy,
        "q": result.q_values,
    }
    if result.target.actions is not None:
        fields["actions"] = result.target.actions
    return {name: array[row] for name, array in fields.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_its_batch(kind: str) -> None:
    """Alone, first and last among 64 rows with values of +-1e4: equal to the bit."""
    world, settings = KINDS[kind]
    two = kind == "two-players"
    search = make_search(world.num_actions, num_simulations=40, root_noise_weight=0.25, **settings)
    alone = row_of(search_rows(search, world, [205], [1.0], [7], two), 0)
    others = [(37 * i) % 10007 for i in range(63)]
    factors = [(-1.0) ** i * 1e4 for i in range(63)]
    streams = list(range(20, 83))
    first = search_rows(search, world, [205, *others], [1.0, *factors], [7, *streams], two)
    last = search_rows(search, world, [*others, 205], [*factors, 1.0], [*streams, 7], two)
    for name, expected in alone.items():
        np.testing.assert_array_equal(row_of(first, 0)[name], expected, err_msg=name)
        np.testing.assert_array_equal(row_of(last, 63)[name], expected, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_does_not_depend_on_earlier_ones(kind: str) -> None:
    world, settings = KINDS[kind]
    used = make_search(world.num_actions, num_simulations=40, **settings)
    fresh = make_search(world.num_actions, num_simulations=40, **settings)
    for batch in (3, 1, 8, 2):
        search_rows(used, world, [9] * batch, [1e4] * batch, list(range(batch)))
    a = search_rows(used, world, [3, 104], [1.0, 1.0], [1, 2])
    b = search_rows(fresh, world, [3, 104], [1.0, 1.0], [1, 2])
    for name, expected in row_of(b, slice(None)).items():  # type: ignore[arg-type]
        np.testing.assert_array_equal(row_of(a, slice(None))[name], expected)  # type: ignore[arg-type]


def test_results_and_leaves_survive_the_next_search() -> None:
    world, settings = KINDS["sampled"]
    search = make_search(world.num_actions, num_simulations=30, **settings)
    first = search_rows(search, world, [3, 104], [1.0, 1.0], [1, 2])
    kept = {name: array.copy() for name, array in row_of(first, slice(None)).items()}  # type: ignore[arg-type]
    assert search.last_run is not None
    leaves = search.last_run.arrays["parent"]
    parents = leaves.copy()
    search_rows(search, world, [9, 8], [5.0, 5.0], [3, 4])
    for name, array in row_of(first, slice(None)).items():  # type: ignore[arg-type]
        np.testing.assert_array_equal(array, kept[name])
    np.testing.assert_array_equal(leaves, parents)


@pytest.mark.parametrize("kind", ["puct", "chance", "sampled-continuous"])
def test_tensors_and_arrays_give_the_same(kind: str) -> None:
    from tests.search.helpers import run

    world, settings = KINDS[kind]
    search = make_search(world.num_actions, num_simulations=20, **settings)
    arrays = run(search, dataclasses.replace(world, calls=[]), [3, 104], explore=True)
    tensors = run(
        search, dataclasses.replace(world, as_torch=True, calls=[]), [3, 104], explore=True
    )
    np.testing.assert_array_equal(arrays.visit_counts, tensors.visit_counts)
    np.testing.assert_array_equal(arrays.value, tensors.value)
