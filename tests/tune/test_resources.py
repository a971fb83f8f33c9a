"""Bundles of a trial, and the check against the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from zero_tune.config import AsyncPipelineConfig
from zero_tune.errors import ConfigError, ResourceError
from zero_tune.tune.resources import bundles, check_fits, child_bundle_index, placement_group
from zero_tune.tune.trainable import MuZeroAsyncTrainable, MuZeroSyncTrainable


def pipe(**keys: Any) -> AsyncPipelineConfig:
    return AsyncPipelineConfig(**keys)


def test_one_bundle_per_process() -> None:
    asked = pipe(num_collector_actors=2, collector_num_cpus=0.5, driver_num_gpus=0.5)
    assert bundles(asked) == [
        {"CPU": 1, "GPU": 0.5},
        {"CPU": 0.5},
        {"CPU": 0.5},
        {"CPU": 1},
    ]
    factory = placement_group(asked)
    assert factory.required_resources == {"CPU": 3, "GPU": 0.5} and factory.strategy == "PACK"


def test_sync_and_local_trials_take_one_bundle() -> None:
    assert bundles(pipe(enabled=False)) == [{"CPU": 1}]
    assert bundles(pipe(ray_local_mode=True, driver_num_cpus=2)) == [{"CPU": 2}]
    request = MuZeroSyncTrainable.default_resource_request({})
    assert request.required_resources == {"CPU": 1}


def test_a_key_of_another_group_is_sent_where_it_belongs() -> None:
    config = {"policy": {"async_pipeline": {"batch_size": 3}}}
    with pytest.raises(ConfigError, match=r"async_pipeline\.batch_size.*'policy\.batch_size'"):
        MuZeroAsyncTrainable.default_resource_request(config)


def test_the_request_follows_the_config() -> None:
    config = {"policy": {"async_pipeline": {"num_collector_actors": 2, "evaluator_num_cpus": 0.5}}}
    request = MuZeroAsyncTrainable.default_resource_request(config)
    assert request.required_resources == {"CPU": 3.5}
    with pytest.raises(ConfigError, match="num_collector_actors"):
        MuZeroAsyncTrainable.default_resource_request(
            {"policy": {"async_pipeline": {"num_collector_actors": 0}}}
        )


def test_an_empty_driver_bundle_shifts_the_children() -> None:
    assert [child_bundle_index(i, 3, 4) for i in range(3)] == [1, 2, 3]
    assert [child_bundle_index(i, 3, 3) for i in range(3)] == [0, 1, 2]


def test_too_small_a_cluster_is_refused_with_the_arithmetic() -> None:
    asked = pipe(num_collector_actors=2)
    with pytest.raises(ResourceError, match=r"needs 4 CPU, the cluster has 2.*2 x collector 1"):
        check_fits(asked, [{"CPU": 2}])
    with pytest.raises(ResourceError, match="no node can hold"):
        check_fits(pipe(driver_num_gpus=1), [{"CPU": 8}])
    check_fits(asked, [{"CPU": 4}])
    half = pipe(
        num_collector_actors=2, collector_num_cpus=0.5, evaluator_num_cpus=0.5, driver_num_cpus=0.5
    )
    check_fits(half, [{"CPU": 2}])


def test_one_bundle_must_fit_one_node() -> None:
    with pytest.raises(ResourceError, match="no node can hold"):
        check_fits(pipe(collector_num_cpus=3), [{"CPU": 2}, {"CPU": 2}, {"CPU": 2}])
    check_fits(pipe(), [{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
    with pytest.raises(ResourceError, match="needs 3 CPU, the cluster has 1"):
        check_fits(pipe(placement_strategy="STRICT_PACK"), [{"CPU": 1}] * 3)
