"""Training runs without Tune, under the names LightZero's users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zero_tune import checkpoint
from zero_tune.assembly import build_learner_side, driver_threads
from zero_tune.errors import ConfigError
from zero_tune.interfaces import WorkerPool
from zero_tune.parsing import merge
from zero_tune.pipeline.driver import Driver
from zero_tune.pipeline.local_pool import build_local_pool
from zero_tune.presets import resolve

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    best_score: float
    best_checkpoint: Path | None
    last: dict[str, Any]  # the last report


def train(config: Mapping[str, Any], *, on_report: Report | None = None) -> TrainResult:
    """Run one trial to its end; checkpoints go to ``exp_name/ckpt/``.

    Args:
        config: nested dict; give ``policy.max_env_step``, ``policy.max_train_iter`` or ``env.stop_value``.
        on_report: called with each iteration's report.

    Raises:
        ConfigError: the config is wrong, or nothing in it would ever end the run.
    """
    from zero_tune.ops.threads import torch_threads

    resolved, env = resolve(merge({"policy": {"async_pipeline": {"eval_at_start": True}}}, config))
    policy = resolved.policy
    if (
        policy.max_env_step is None
        and policy.max_train_iter is None
        and resolved.env.stop_value is None
    ):
        raise ConfigError(
            "policy.max_env_step",
            "is needed: nothing would end this run",
            None,
            "Set it, or policy.max_train_iter, or env.stop_value.",
        )
    name = (
        resolved.exp_name
        or f"data_{policy.type}/{env.env_id.replace('/', '_')}_seed{resolved.seed}"
    )
    folder = Path(name) / "ckpt"
    pipe = policy.async_pipeline
    with torch_threads(driver_threads(resolved)):
        pool: WorkerPool
        if pipe.enabled and not pipe.ray_local_mode:
            pool = _ray_pool(resolved, env)
        else:
            pool = build_local_pool(resolved, env)
        try:
            driver = Driver(resolved, build_learner_side(resolved, env), pool)
            return _run(driver, env, folder, on_report)
        finally:
            pool.shutdown(pipe.shutdown_timeout_s)


def _ray_pool(config: Any, env: Any) -> WorkerPool:
    from zero_tune.tune.ray_pool import start_ray_pool

    return start_ray_pool(config, env)


def _run(driver: Driver, env: Any, folder: Path, on_report: Report | None) -> TrainResult:
    best, best_path = float("-inf"), None
    while True:
        report = driver.iterate()
        evaluated = driver.evaluated
        if report["evaluation/is_new"] and evaluated is not None:
            names = ["last"]
            if evaluated.result.reward_mean > best:
                best, best_path = evaluated.result.reward_mean, folder / "best"
                names.append("best")
            for name in names:
                checkpoint.write_checkpoint(
                    folder / name,
                    driver.config,
                    env,
                    snapshot=evaluated.snapshot,
                    result=evaluated.result,
                    resume=driver.state_dict(),
                    train_iter=driver.learner.train_iter,
                    envstep=driver.ledger.envstep,
                )
        if on_report is not None:
            on_report(report)
        if report["done"]:
            return TrainResult(best, best_path, report)


def _with(
    config: Mapping[str, Any], policy_type: str, enabled: bool, max_env_step: int | None
) -> dict[str, Any]:
    over: dict[str, Any] = {"policy": {"async_pipeline": {"enabled": enabled}}}
    if max_env_step is not None:
        over["policy"]["max_env_step"] = max_env_step
    return merge(merge({"policy": {"type": policy_type}}, config), over)


def train_muzero_segment(
    config: Mapping[str, Any], *, max_env_step: int | None = None, on_report: Report | None = None
) -> TrainResult:
    """Sync training of a MuZero-family agent; see ``train``."""
    return train(_with(config, "muzero", False, max_env_step), on_report=on_report)


def train_muzero_segment_async(
    config: Mapping[str, Any], *, max_env_step: int | None = None, on_report: Report | None = None
) -> TrainResult:
    """Async training (Ray actors) of a MuZero-family agent; see ``train``."""
    return train(_with(config, "muzero", True, max_env_step), on_report=on_report)


def train_unizero_segment(
    config: Mapping[str, Any], *, max_env_step: int | None = None, on_report: Report | None = None
) -> TrainResult:
    """Sync training of UniZero; see ``train``."""
    return train(_with(config, "unizero", False, max_env_step), on_report=on_report)


def train_unizero_segment_async(
    config: Mapping[str, Any], *, max_env_step: int | None = None, on_report: Report | None = None
) -> TrainResult:
    """Async training (Ray actors) of UniZero; see ``train``."""
    return train(_with(config, "unizero", True, max_env_step), on_report=on_report)
