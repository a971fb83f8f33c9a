"""Searches over sampled candidates, visit for visit against LightZero, with its draws handed in."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from tests.reference import tree_search as slow
from tests.search.helpers import GOLDEN, make_search, root_state, run, scalar_model
from tests.search.table_world import TableWorld, gaussian, policy
from tests.search.test_golden import DifferenceRange, lightzero_settings
from zero_tune.search.search import GivenDraws

FILE = json.loads((GOLDEN / "sampled_lightzero.json").read_text())
UNIFORMS, NORMALS = np.asarray(FILE["uniforms"]), np.asarray(FILE["normals"])


def name(case: dict[str, Any]) -> str:
    kind = "continuous" if case["continuous"] else "discrete"
    return f"{case['kind']}-{kind}-K{case['K']}-{case['root_noise_weight']}"


def world_of(case: dict[str, Any]) -> TableWorld:
    size = case["action_dim"] if case["continuous"] else case["A"]
    horizon = case["lstm_horizon_len"] or 0
    world = TableWorld(size, horizon=horizon, continuous=case["continuous"])
    return dataclasses.replace(world, zero_root_value=True)


def draws_of(case: dict[str, Any]) -> Any:
    if case["continuous"]:
        return NORMALS[: case["K"] * case["action_dim"]]
    return UNIFORMS[: case["A"]]


@pytest.mark.parametrize("case", [c for c in FILE["cases"] if c["kind"] == "smz"], ids=name)
def test_sampled_search_equals_lightzero(case: dict[str, Any]) -> None:
    """Its prior over the samples is uniform, and so root noise has no effect: none is given here."""
    world = world_of(case)
    search = make_search(
        world.num_actions,
        sampled=case["K"],
        continuous=case["continuous"],
        sampled_prior="uniform",
        **lightzero_settings(case),
    )
    result = run(search, world, case["root_state"], given=GivenDraws(node_draws=draws_of(case)))
    np.testing.assert_allclose(result.target.actions, case["root_sampled_actions"], atol=2e-6)
    assert result.visit_counts.tolist() == case["visits"]
    np.testing.assert_allclose(result.value, case["root_value"], atol=1e-6)
    assert search.last_run is not None
    leaves = search.last_run.arrays
    for k, row in enumerate(case["trace"]):
        assert leaves["parent"][k].tolist() == [leaf[0] for leaf in row]
        np.testing.assert_allclose(leaves["action"][k], [leaf[1] for leaf in row], atol=2e-6)


@pytest.mark.parametrize("case", [c for c in FILE["cases"] if c["kind"] == "ezs"], ids=name)
def test_sampled_reference_equals_lightzero_with_its_range_update(case: dict[str, Any]) -> None:
    """The value-prefix tree's range sees prefix differences where a prefix has just restarted."""
    world, draws = world_of(case), draws_of(case)

    def propose(policy_params: Any) -> tuple[list[Any], list[float]]:
        return sample(case, np.asarray(policy_params), draws), [0.0] * case["K"]

    for b, s in enumerate(case["root_state"]):
        settings = slow.Settings(
            case["S"],
            case["discount"],
            count_own_visit=False,
            value_delta_max=case["value_delta_max"],
        )
        search = DifferenceRange(settings, scalar_model(world), propose)
        params = gaussian(np.array([s]), case["action_dim"]) if case["continuous"] else None
        params = policy(np.array([s]), case["A"]) if params is None else params
        root = search.make_root(*propose(params[0]), 0.0, root_state(s))
        np.testing.assert_allclose(
            np.reshape(root.actions, (case["K"], -1)), case["root_sampled_actions"][b], atol=2e-6
        )
        result = search.run(root)
        assert result.visits == case["visits"][b]
        assert abs(result.value - case["root_value"][b]) < 1e-5


def sample(case: dict[str, Any], params: Any, draws: Any) -> list[Any]:
    """The candidates of one node: tanh of Gaussian draws, or the K largest u^(1/p) in order."""
    count, dim = case["K"], case["action_dim"]
    if case["continuous"]:
        mu, sigma = params[:dim], params[dim:]
        return list(np.tanh(mu + sigma * draws.reshape(count, dim)).astype(np.float32))
    p = slow.softmax(list(params))
    keys = [math.log(u) / q for u, q in zip(draws, p, strict=True)]
    return sorted(range(len(keys)), key=lambda a: -keys[a])[:count]
