"""Searches of the table world, visit for visit against what other implementations' code did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference import tree_search as slow
from tests.search.helpers import (
    enumerate_all,
    golden,
    make_search,
    root_state,
    run,
    scalar_model,
    trace_of,
)
from tests.search.table_world import TableWorld, given_noise, policy, value
from zero_tune.search.rules import considered_visits
from zero_tune.search.search import GivenDraws
from zero_tune.types import SearchResult


def roots(case: dict[str, Any]) -> list[int]:
    return [101 * b + 3 for b in range(len(case["visits"]))]


def name(case: dict[str, Any]) -> str:
    return f"A{case['A']}-S{case['S']}"


def noise_of(case: dict[str, Any], usable: list[int], width: int) -> Any:
    noise = np.full((len(case["visits"]), width), np.nan, np.float32)
    for b in range(len(noise)):
        noise[b, usable] = given_noise(b, len(usable))
    return noise


def lightzero_settings(case: dict[str, Any]) -> dict[str, Any]:
    """LightZero's PUCT: the first choice at a node is a tie, mean-Q for unvisited, one range per tree."""
    return {
        "num_simulations": case["S"],
        "discount_factor": case["discount"],
        "value_delta_max": case["value_delta_max"],
        "count_own_visit": False,
        "unvisited_q": "parent_mean",
        "q_normalization": "tree",
    }


PUCT_LIGHTZERO = golden("muzero_puct_lightzero")


@pytest.mark.parametrize("case", [c for c in PUCT_LIGHTZERO if c["to_play"][0] == -1], ids=name)
def test_puct_equals_lightzero(case: dict[str, Any]) -> None:
    """Its root ignores the network's value (a departure), so the value handed in is 0."""
    search = make_search(
        case["A"],
        pb_c_base=case["pb_c_base"],
        pb_c_init=case["pb_c_init"],
        root_noise_weight=case["root_noise_weight"],
        **lightzero_settings(case),
    )
    result = run(
        search,
        TableWorld(case["A"], zero_root_value=True),
        case["root_state"],
        legal=case["legal"],
        explore=True,
        given=GivenDraws(root_noise=noise_of(case, case["legal"], case["A"])),
    )
    assert result.visit_counts.tolist() == case["visits"]
    np.testing.assert_allclose(result.value, case["root_value"], atol=1e-6)
    assert np.argmax(result.visit_counts, axis=1).tolist() == case["best_action"]
    if case["trace"]:
        assert trace_of(search) == case["trace"]


@pytest.mark.parametrize("case", [c for c in PUCT_LIGHTZERO if c["to_play"][0] > 0], ids=name)
def test_two_player_reference_equals_lightzero_with_its_mean_q_sign(case: dict[str, Any]) -> None:
    """LightZero adds the opponent's value in mean-Q where it must subtract it.

    The slow reference, with that one sign turned, reproduces its figures; without it, the reference is
    what `test_reference` compares two-player searches with.
    """
    for b, s in enumerate(case["root_state"]):
        settings = slow.Settings(
            case["S"],
            case["discount"],
            two_players=True,
            count_own_visit=False,
            value_delta_max=case["value_delta_max"],
            lightzero_mean_signs=True,
        )
        world = TableWorld(case["A"])
        search = slow.Puct(settings, scalar_model(world), enumerate_all(case["A"]))
        logits = policy(np.array([s]), case["A"])[0, case["legal"]].tolist()
        result = search.run(search.make_root(case["legal"], logits, 0.0, root_state(s)))
        assert result.visits == [case["visits"][b][a] for a in case["legal"]]
        assert abs(result.value - case["root_value"][b]) < 1e-5


@pytest.mark.parametrize(
    "case",
    [c for c in golden("muzero_puct_mctx") if c["qtransform"] == "by_parent_and_siblings"],
    ids=name,
)
def test_puct_equals_mctx(case: dict[str, Any]) -> None:
    search = make_search(
        case["A"],
        num_simulations=case["S"],
        discount_factor=case["discount"],
        value_delta_max=1e-8,
        unvisited_q="min",
        q_normalization="node",
        root_noise_weight=0.0,
    )
    result = run(search, TableWorld(case["A"]), roots(case), legal=case["legal"])
    assert result.visit_counts.tolist() == case["visits"]
    assert_same_choice(result, case)
    np.testing.assert_allclose(result.value, case["root_value"], atol=2e-6)
    visited = result.visit_counts > 0
    np.testing.assert_allclose(
        result.q_values[visited], np.asarray(case["root_q"])[visited], atol=2e-6
    )
    assert_same_tree(search, case)


def assert_same_choice(result: SearchResult, case: dict[str, Any]) -> None:
    """The first most visited action; mctx draws among equals."""
    for b, visits in enumerate(case["visits"]):
        tied = [a for a, n in enumerate(visits) if n == max(visits)]
        assert case["action"][b] in tied
        assert result.action[b, 0] == tied[0]


def assert_same_tree(search: Any, case: dict[str, Any]) -> None:
    if case.get("parents") is None:
        return
    leaves = search.last_run.arrays
    assert leaves["parent"].T.tolist() == [row[1:] for row in case["parents"]]
    assert leaves["action"][:, :, 0].T.tolist() == [row[1:] for row in case["action_from_parent"]]


@pytest.mark.parametrize("case", golden("gumbel_mctx"), ids=name)
def test_gumbel_equals_mctx(case: dict[str, Any]) -> None:
    search = make_search(
        case["A"],
        rule="gumbel",
        num_simulations=case["S"],
        discount_factor=case["discount"],
        max_num_considered_actions=case["max_num_considered_actions"],
    )
    result = run(
        search,
        TableWorld(case["A"]),
        roots(case),
        legal=case["legal"],
        given=GivenDraws(root_gumbel=np.asarray(case["root_gumbel"], np.float32)),
    )
    assert result.visit_counts.tolist() == case["visits"]
    assert result.action[:, 0].tolist() == case["action"]
    np.testing.assert_allclose(result.value, case["root_value"], atol=2e-6)
    np.testing.assert_allclose(result.target.weights, case["action_weights"], atol=1e-5)
    assert_same_tree(search, case)


def test_considered_visits_equal_mctx() -> None:
    import json

    from tests.search.helpers import GOLDEN

    tables = json.loads((GOLDEN / "gumbel_mctx.json").read_text())["considered_visits_tables"]
    assert len(tables) == 8
    for key, table in tables.items():
        m, simulations = map(int, key.split(","))
        assert considered_visits(m, simulations).tolist() == table


@pytest.mark.parametrize("case", golden("stochastic_mctx"), ids=name)
def test_chance_nodes_equal_mctx(case: dict[str, Any]) -> None:
    actions, codes = case["A"], case["C"]
    search = make_search(
        actions,
        codes=codes,
        num_simulations=case["S"],
        discount_factor=case["discount"],
        value_delta_max=1e-8,
        unvisited_q="min",
        q_normalization="node",
        root_noise_weight=0.0,
    )
    world = TableWorld(actions, num_codes=codes)
    result = run(search, world, roots(case), legal=case["legal"])
    assert result.visit_counts.tolist() == case["visits"]
    assert_same_choice(result, case)
    np.testing.assert_allclose(result.value, case["root_value"], atol=2e-6)
    if case.get("parents"):  # codes come after the actions in its numbering
        was_chance = np.stack([call[0] for call in world.calls], axis=1)
        chosen = np.stack([call[2][:, 0] for call in world.calls], axis=1)
        assert (chosen + actions * was_chance).tolist() == [
            row[1:] for row in case["action_from_parent"]
        ]


@pytest.mark.parametrize("case", golden("stochastic_lightzero"), ids=name)
def test_chance_reference_equals_lightzero_with_its_double_discount(case: dict[str, Any]) -> None:
    """LightZero discounts on both edges of one real step; the codes there are certain."""
    for b, s in enumerate(case["root_state"]):
        world = TableWorld(case["A"], num_codes=case["C"])
        base = scalar_model(world)

        def model(state: Any, action: Any, base: Any = base, codes: int = case["C"]) -> slow.Step:
            step = base(state, action)
            if step.is_chance:
                sure = [40.0 if c == step.state[0] % codes else 0.0 for c in range(codes)]
                step = step._replace(policy=sure)
            return step

        settings = slow.Settings(
            case["S"],
            case["discount"],
            count_own_visit=False,
            value_delta_max=case["value_delta_max"],
            num_codes=case["C"],
            lightzero_double_discount=True,
        )
        search = OneCode(settings, model, enumerate_all(case["A"]))
        logits = policy(np.array([s]), case["A"])[0, case["legal"]].tolist()
        result = search.run(search.make_root(case["legal"], logits, 0.0, root_state(s)))
        assert result.visits == [case["visits"][b][a] for a in case["legal"]]
        assert abs(result.value - case["root_value"][b]) < 1e-5


class OneCode(slow.Puct):
    """Chance nodes always take their most likely code."""

    def code(self, node: slow.Node) -> int:
        return node.prior.index(max(node.prior))


@pytest.mark.parametrize("case", golden("efficientzero_lightzero"), ids=name)
def test_value_prefix_reference_equals_lightzero_with_its_range_update(
    case: dict[str, Any],
) -> None:
    """LightZero's range sees prefix(child) - prefix(parent) even where the prefix has just restarted."""
    world = TableWorld(case["A"], horizon=case["lstm_horizon_len"])
    for b, s in enumerate(case["root_state"]):
        settings = slow.Settings(
            case["S"],
            case["discount"],
            count_own_visit=False,
            value_delta_max=case["value_delta_max"],
        )
        search = DifferenceRange(settings, scalar_model(world), enumerate_all(case["A"]))
        logits = policy(np.array([s]), case["A"])[0, case["legal"]].tolist()
        result = search.run(search.make_root(case["legal"], logits, 0.0, root_state(s)))
        assert result.visits == [case["visits"][b][a] for a in case["legal"]]
        assert abs(result.value - case["root_value"][b]) < 1e-5


class DifferenceRange(slow.Puct):
    def expand(self, parent: slow.Node, slot: int, number: int) -> slow.Node:
        node = super().expand(parent, slot, number)
        node.tracked_reward = float(node.state[3]) - float(parent.state[3])
        return node


@pytest.mark.parametrize(
    "case",
    [c for c in golden("efficientzero_lightzero") if c["lstm_horizon_len"] == 1000],
    ids=name,
)
def test_value_prefix_search_equals_lightzero_without_restarts(case: dict[str, Any]) -> None:
    search = make_search(case["A"], **lightzero_settings(case))
    world = TableWorld(case["A"], horizon=case["lstm_horizon_len"], zero_root_value=True)
    result = run(search, world, case["root_state"], legal=case["legal"])
    assert result.visit_counts.tolist() == case["visits"]
    np.testing.assert_allclose(result.value, case["root_value"], atol=1e-6)
    if case["trace"]:
        assert trace_of(search) == [[leaf[:3] for leaf in row] for row in case["trace"]]


def test_table_world_is_the_one_the_figures_were_made_with() -> None:
    assert value(np.array([3]))[0] == np.float32((111 % 1009) / 1009 * 2 - 1)
