"""Bundles of a trial, and the check that a cluster can ever hold them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import tune

from zero_tune.config import AsyncPipelineConfig
from zero_tune.errors import ResourceError

logger = logging.getLogger(__name__)


def bundles(pipe: AsyncPipelineConfig) -> list[dict[str, float]]:
    """One bundle per process: driver, collectors, evaluators. Zero entries are left out."""
    driver = _bundle(pipe.driver_num_cpus, pipe.driver_num_gpus)
    if not pipe.enabled or pipe.ray_local_mode:
        return [driver]
    collector = _bundle(pipe.collector_num_cpus, pipe.collector_num_gpus)
    evaluator = _bundle(pipe.evaluator_num_cpus, pipe.evaluator_num_gpus)
    return (
        [driver] + [collector] * pipe.num_collector_actors + [evaluator] * pipe.num_evaluator_actors
    )


def _bundle(cpus: float, gpus: float) -> dict[str, float]:
    return {name: value for name, value in (("CPU", cpus), ("GPU", gpus)) if value}


def placement_group(pipe: AsyncPipelineConfig) -> tune.PlacementGroupFactory:
    """What Tune reserves for one trial."""
    return tune.PlacementGroupFactory(
        [dict(b) for b in bundles(pipe)], strategy=pipe.placement_strategy
    )


def child_bundle_index(position: int, num_children: int, num_bundles: int) -> int:
    """Bundle of child ``position``; Ray drops an empty driver bundle, which shifts the children."""
    return position + num_bundles - num_children


def check_fits(
    pipe: AsyncPipelineConfig, nodes: Sequence[Mapping[str, float]] | None = None
) -> None:
    """Raise if the cluster can never hold one trial, instead of waiting for ever.

    Args:
        nodes: resources of each node; None asks the cluster that this process is connected to.

    Raises:
        ResourceError: with the sum, the shortage and the remedy.
    """
    if nodes is None:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for bundle in bundles(pipe):
        if not any(all(n.get(k, 0.0) >= v for k, v in bundle.items()) for n in nodes):
            raise ResourceError(
                f"no node can hold one bundle of {bundle}: a worker cannot be spread over nodes. Lower "
                "policy.async_pipeline.*_num_cpus and *_num_gpus."
            )
    if pipe.placement_strategy == "STRICT_PACK":
        nodes = [max(nodes, key=lambda node: node.get("CPU", 0.0))]
    have: dict[str, float] = {}
    for node in nodes:
        for name, value in node.items():
            have[name] = have.get(name, 0.0) + value
    need: dict[str, float] = {}
    for bundle in bundles(pipe):
        for name, value in bundle.items():
            need[name] = need.get(name, 0.0) + value
    short = {n: v - have.get(n, 0.0) for n, v in need.items() if v > have.get(n, 0.0) + 1e-9}
    if not short:
        return
    parts = (
        f"driver {pipe.driver_num_cpus:g} + {pipe.num_collector_actors} x collector "
        f"{pipe.collector_num_cpus:g} + {pipe.num_evaluator_actors} x evaluator "
        f"{pipe.evaluator_num_cpus:g}"
    )
    lacking = ", ".join(
        f"needs {need[n]:g} {n}, the cluster has {have.get(n, 0.0):g}" for n in short
    )
    raise ResourceError(
        f"one trial does not fit the cluster: {lacking} (CPU: {parts}). Lower "
        "policy.async_pipeline.*_num_cpus or num_*_actors, start Ray with more logical CPUs "
        "(ray.init(num_cpus=...), see zero_tune.tune.resources.init_ray), or set "
        "policy.async_pipeline.enabled=False."
    )


def init_ray(num_cpus: int | None = None, **kwargs: Any) -> None:
    """Start a local Ray with at least as many logical CPUs as one async trial needs.

    Ray's CPUs are bookkeeping: on a machine with fewer than four cores, driver, collector and evaluator
    share them. The number announced is logged.
    """
    if ray.is_initialized():
        return
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    logical = num_cpus or max(4, cores)
    if logical > cores:
        logger.warning("announcing %d logical CPUs to Ray on %d cores", logical, cores)
    ray.init(num_cpus=logical, include_dashboard=False, **kwargs)
