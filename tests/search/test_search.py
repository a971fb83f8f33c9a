"""The search's contract: masks, calls of the model, errors, randomness, the action that is returned."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.tree_search import Step
from tests.search.helpers import generators, make_search, run
from tests.search.scalar_world import ScalarWorld
from tests.search.table_world import TableWorld
from tests.search.test_puct import constant, search_one
from zero_tune.errors import ConfigError, EnvError, NonFiniteError
from zero_tune.interfaces import Search
from zero_tune.ops.jit import source_fingerprint
from zero_tune.search.kernels import step
from zero_tune.search.search import GivenDraws

RULES: list[dict[str, Any]] = [
    {},
    {"rule": "gumbel"},
    {"sampled": 4},
    {"sampled": 4, "rule": "gumbel"},
    {"codes": 3},
]


def world_for(settings: dict[str, Any], actions: int) -> TableWorld:
    return TableWorld(actions, num_codes=settings.get("codes", 0))


def test_is_a_search() -> None:
    assert isinstance(make_search(3), Search)


@pytest.mark.parametrize("settings", RULES, ids=str)
@pytest.mark.parametrize("legal", [[0], [5], [1, 4], [0, 1, 2, 3, 4, 5]])
def test_illegal_actions_get_nothing(settings: dict[str, Any], legal: list[int]) -> None:
    search = make_search(6, num_simulations=25, **settings)
    for explore in (False, True):
        result = run(
            search,
            world_for(settings, 6),
            list(range(30)),
            legal=legal,
            explore=explore,
            epsilon=0.3,
        )
        assert np.isin(result.action, legal).all()
        assert (result.visit_counts.sum(axis=1) == 25).all()
        np.testing.assert_allclose(result.target.weights.sum(axis=1), 1.0, atol=1e-5)
        assert (result.target.weights >= 0).all()
        np.testing.assert_allclose(result.root_policy.sum(axis=1), 1.0, atol=1e-5)
        if result.target.actions is None:
            illegal = [a for a in range(6) if a not in legal]
            assert (result.visit_counts[:, illegal] == 0).all()
            assert (result.target.weights[:, illegal] == 0).all()
            assert (result.root_policy[:, illegal] == 0).all()
        assert np.isnan(result.q_values[result.visit_counts == 0]).all()
        assert np.isfinite(result.q_values[result.visit_counts > 0]).all()


def test_masks_differ_by_row() -> None:
    mask = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1]], np.bool_)
    result = run(make_search(3), TableWorld(3), [3, 4, 5], legal=mask)
    assert ((result.visit_counts > 0) <= mask).all()


@pytest.mark.parametrize("settings", RULES, ids=str)
def test_no_legal_action_is_an_error(settings: dict[str, Any]) -> None:
    mask = np.ones((3, 6), np.bool_)
    mask[1] = False
    with pytest.raises(EnvError, match="row 1 of 3"):
        run(make_search(6, **settings), world_for(settings, 6), [1, 2, 3], legal=mask)


@pytest.mark.parametrize("settings", RULES, ids=str)
def test_one_network_call_per_simulation(settings: dict[str, Any]) -> None:
    world = world_for(settings, 6)
    run(make_search(6, num_simulations=25, **settings), world, [1, 2])
    assert len(world.calls) == 25
    run(make_search(6, num_simulations=25, **settings), world, [1, 2], num_simulations=7)
    assert len(world.calls) == 32


def test_simulations_follow_the_mode() -> None:
    search = make_search(3, num_simulations=9, collect_num_simulations=5, eval_num_simulations=None)
    assert run(search, TableWorld(3), [1], explore=True).visit_counts.sum() == 5
    assert run(search, TableWorld(3), [1], explore=False).visit_counts.sum() == 9


@pytest.mark.parametrize(("actions", "codes"), [(7, 3), (2, 10)])
def test_codes_and_actions_have_their_own_ranges(actions: int, codes: int) -> None:
    """The root decides; then afterstates get codes 0..C-1 and decisions get actions 0..A-1, in turn."""
    world = TableWorld(actions, num_codes=codes)
    search = make_search(actions, codes=codes, num_simulations=50)
    result = run(search, world, [3, 104, 205, 306], explore=True)
    assert result.visit_counts.shape == (4, actions)
    depth = np.zeros((51, 4), np.int64)
    seen: dict[bool, set[int]] = {False: set(), True: set()}
    for k, (was_chance, parent, action) in enumerate(world.calls, start=1):
        depth[k] = depth[parent, np.arange(4)] + 1
        np.testing.assert_array_equal(was_chance, depth[k] % 2 == 0)
        for chance, a in zip(was_chance, action[:, 0], strict=True):
            seen[bool(chance)].add(int(a))
    assert seen[False] == set(range(actions))
    assert seen[True] <= set(range(codes)) and len(seen[True]) > min(codes, 5) // 2


def test_chance_nodes_need_codes_that_fit() -> None:
    with pytest.raises(ConfigError, match="chance_space_size"):
        run(make_search(4, codes=9), TableWorld(4, num_codes=3), [1])
    with pytest.raises(ConfigError, match="chance_space_size"):
        run(make_search(4), TableWorld(4, num_codes=3), [1])


def test_enumerating_a_continuous_space_is_an_error() -> None:
    with pytest.raises(ConfigError, match="continuous"):
        make_search(2, continuous=True)


@pytest.mark.parametrize("bad", ["policy", "value", "reward"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_named(bad: str, number: float) -> None:
    values = {"reward": 0.0, "value": 0.0, "policy": [0.0, 0.0]}

    def broken(state: int, action: int) -> Step:
        faulty = values | {bad: [0.0, number] if bad == "policy" else number}
        return Step(**(faulty if state == 2 else values), state=state + 1)  # type: ignore[arg-type]

    with pytest.raises(NonFiniteError, match=f"search/{bad}"):
        search_one(ScalarWorld(broken), Step(0, 0, [0.0, 0.0], 0), num_simulations=60)
    if bad != "reward":
        root = Step(**(values | {bad: [0.0, number] if bad == "policy" else number}), state=0)  # type: ignore[arg-type]
        with pytest.raises(NonFiniteError, match="at the root"):
            search_one(constant(0, 0, 2), root)


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Compiled code checks no bounds, so nothing of another shape may reach it."""

    def world(fault: str) -> ScalarWorld:
        width = 3 if fault == "policy" else 2
        return ScalarWorld(lambda state, action: Step(0.0, 0.0, [0.0] * width, None))

    root = Step(0, 0, [0.0, 0.0], None)
    search_one(world(""), root)
    with pytest.raises(ValueError, match="do not fit"):
        search_one(world("policy"), root)
    with pytest.raises(ValueError, match="needs 4"):
        search_one(world(""), root, width=4)
    with pytest.raises(ValueError, match="legal must have shape"):
        run(make_search(3), TableWorld(3), [1, 2], legal=np.ones((2, 4), np.bool_))
    with pytest.raises(ValueError, match="root_noise"):
        run(make_search(3), TableWorld(3), [1], given=GivenDraws(root_noise=np.ones((1, 2))))


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_sampled_policy_that_is_not_finite_is_named(
    continuous: bool, at: int, number: float
) -> None:
    """Even where the draws would not have touched the bad entry."""
    good = [0.0, 9.0, 0.0, 1.0] if not continuous else [0.0, 0.0, 1.0, 1.0]
    bad = [*good]
    bad[at] = number

    def broken(state: int, action: Any) -> Step:
        return Step(0.0, 0.0, bad if state == 1 else good, state + 1)

    with pytest.raises(NonFiniteError, match="search/policy"):
        search_one(
            ScalarWorld(broken),
            Step(0, 0, good, 0),
            width=2 if continuous else 4,
            sampled=2,
            continuous=continuous,
            num_simulations=30,
        )


@pytest.mark.parametrize("settings", [*RULES, {"sampled": 3, "continuous": True}], ids=str)
def test_evaluation_is_a_function_of_its_arguments(settings: dict[str, Any]) -> None:
    continuous = "continuous" in settings
    search = make_search(6, num_simulations=25, **settings)
    world = TableWorld(6, num_codes=settings.get("codes", 0), continuous=continuous)
    legal = np.ones((2, 0 if continuous else 6), np.bool_)
    rng = generators(2)
    before = rng.copy()

    def once() -> Any:
        return search.run(
            world, world.roots([3, 4]), legal, np.full(2, -1, np.int8), rng, explore=False
        )

    a, b = once(), once()
    np.testing.assert_array_equal(rng, before)
    np.testing.assert_array_equal(a.action, b.action)
    np.testing.assert_array_equal(a.visit_counts, b.visit_counts)
    search.run(world, world.roots([3, 4]), legal, np.full(2, -1, np.int8), rng, explore=True)
    assert (rng != before).all()


def test_action_is_drawn_from_visits_at_the_temperature() -> None:
    """Visits 3:1 (by prior, no values); N^(1/T) at T = 1 and T = 0.5, argmax at T = 0."""
    batch = 2500
    root = Step(0, 0.0, [float(np.log(3)), 0.0], None)
    world = constant(0.0, 0.0, 2)
    search = make_search(2, num_simulations=8, root_noise_weight=0.0)

    def act(temperature: float, explore: bool = True, epsilon: float = 0.0) -> Any:
        return search.run(
            world,
            world.roots([root] * batch),
            np.ones((batch, 2), np.bool_),
            np.full(batch, -1, np.int8),
            generators(batch, seed=11),
            explore=explore,
            temperature=temperature,
            epsilon=epsilon,
        )

    result = act(1.0)
    visits = result.visit_counts[0]
    assert visits.tolist() == [6, 2]
    assert np.mean(result.action == 1) == pytest.approx(0.25, abs=0.03)
    assert result.entropy[0] == pytest.approx(0.811278, abs=1e-5)
    result = act(0.5)
    assert np.mean(result.action == 1) == pytest.approx(0.1, abs=0.02)
    assert result.entropy[0] == pytest.approx(0.468996, abs=1e-5)
    assert (act(0.0).action == 0).all()
    assert (act(1e-4).action == 0).all()
    assert (act(1.0, explore=False).action == 0).all()
    greedy = act(0.0, epsilon=0.4)
    assert np.mean(greedy.action == 1) == pytest.approx(0.2, abs=0.03)
    np.testing.assert_allclose(greedy.target.weights, act(0.0).target.weights)
    assert np.mean(act(0.0, explore=False, epsilon=1.0).action == 1) == 0


def test_ties_go_to_the_first_slot() -> None:
    result = search_one(constant(0.0, 0.0, 4), Step(0, 0.0, [0.0] * 4, None), num_simulations=8)
    assert result.visit_counts[0].tolist() == [2, 2, 2, 2]
    assert result.action[0, 0] == 0


def test_uniform_exploration_of_continuous_actions_covers_the_box() -> None:
    world = TableWorld(2, continuous=True)
    search = make_search(2, sampled=3, continuous=True, num_simulations=3)
    result = run(search, world, [3] * 2000, explore=True, epsilon=1.0)
    assert result.action.dtype == np.float32 and result.action.shape == (2000, 2)
    np.testing.assert_allclose(result.action.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(result.action.var(axis=0), 1 / 3, atol=0.03)


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_has_its_own_trees(copy_of: Any) -> None:
    search = make_search(4)
    expected = run(search, TableWorld(4), [3])
    again = copy_of(search)
    assert again.last_run is None
    np.testing.assert_array_equal(
        run(again, TableWorld(4), [3]).visit_counts, expected.visit_counts
    )
    assert not np.shares_memory(search.last_run.arrays["edge_i"], again.last_run.arrays["edge_i"])


def test_cached_code_is_named_after_its_sources() -> None:
    """Numba would reuse a cached kernel although a helper in another file has changed."""
    run(make_search(3), TableWorld(3), [1])
    name = f"{source_fingerprint():08x}"
    assert any(name in file.name for file in Path(step.stats.cache_path).iterdir())
