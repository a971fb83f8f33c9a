"""Search spaces: every value of each is a valid config."""

from __future__ import annotations

import importlib
from typing import Any

import optuna
import pytest
from ray import tune
from ray.tune.search.optuna import OptunaSearch
from ray.tune.utils.util import flatten_dict, unflatten_dict

from search_spaces.common import suggest
from zero_tune.errors import ConfigError
from zero_tune.parsing import get_path, merge
from zero_tune.policies import POLICIES
from zero_tune.presets import resolve
from zero_tune.tune.search import SearchRequest, check_space, leaves, load_space, run_search

VECTOR, IMAGE, BOARD, BOX = (
    "CartPole-v1",
    "zero_tune/Catch-v0",
    "zero_tune/TicTacToe-v0",
    "Pendulum-v1",
)
SAMPLING = [name for name, spec in POLICIES.items() if spec.proposal == "sample"]


def base(policy_type: str, env_id: str = VECTOR) -> dict[str, Any]:
    return {"env": {"env_id": env_id}, "policy": {"type": policy_type}}


def resolves(policy_type: str, flat: dict[str, Any]) -> None:
    config, _ = resolve(merge(base(policy_type), unflatten_dict(flat)))
    for key, value in flat.items():
        assert get_path(config.to_dict(), key.replace("/", ".")) == value


@pytest.mark.parametrize(
    ("policy_type", "env_id"),
    [(name, env_id) for name in POLICIES for env_id in (VECTOR, IMAGE)]
    + [("muzero", BOARD), ("gumbel_muzero", BOARD)]
    + [(name, BOX) for name in SAMPLING],
)
def test_every_choice_is_a_valid_config(policy_type: str, env_id: str) -> None:
    space = load_space(None, policy_type)
    assert len(leaves(space)) >= 4
    check_space(base(policy_type, env_id), space)


def test_a_bad_value_in_a_space_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("zero_tune.tune.search.init_ray", started)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    for value in (tune.choice([32, -1]), tune.randint(-1, 9), tune.grid_search([8, -1]), -1):
        monkeypatch.setitem(globals(), "BAD", {"policy": {"batch_size": value}})
        with pytest.raises(ConfigError, match=r"policy.batch_size.*-1"):
            run_search(SearchRequest(base("muzero"), search_space=f"{__name__}:BAD"))


@pytest.mark.parametrize("policy_type", POLICIES)
def test_mutations_are_settings(policy_type: str) -> None:
    mutations = flatten_dict(load_module(policy_type).PBT_MUTATIONS)
    resolves(policy_type, {key: domain.sample() for key, domain in mutations.items()})


@pytest.mark.parametrize("policy_type", POLICIES)
def test_the_function_suggests_the_space(policy_type: str) -> None:
    space = load_module(policy_type)
    search = OptunaSearch(space.define_by_run, metric="score", mode="max", seed=0)
    found = search.suggest("a")
    assert found is not None
    assert flatten_dict(found).keys() == flatten_dict(space.PARAM_SPACE).keys()
    resolves(policy_type, flatten_dict(found))


def load_module(policy_type: str) -> Any:
    return importlib.import_module(f"search_spaces.{POLICIES[policy_type].space}")


def test_ranges_keep_their_bounds_scale_and_steps() -> None:
    space = {"a": tune.loguniform(1e-3, 1.0), "b": {"c": tune.quniform(0.0, 1.0, 0.25)}}
    trial = optuna.create_study().ask()
    suggest({**space, "d": tune.randint(2, 5), "e": tune.choice(["x", "y"])}, trial)
    float_ = optuna.distributions.FloatDistribution
    assert trial.distributions == {
        "a": float_(1e-3, 1.0, log=True),
        "b/c": float_(0.0, 1.0, step=0.25),
        "d": optuna.distributions.IntDistribution(2, 4),
        "e": optuna.distributions.CategoricalDistribution(("x", "y")),
    }
    with pytest.raises(ValueError, match=r"[Gg]rid"):
        suggest({"a": tune.grid_search([1, 2])}, trial)
