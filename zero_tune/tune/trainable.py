"""The Tune class trainable: a thin face of the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune

from zero_tune import checkpoint
from zero_tune.assembly import build_learner_side, driver_threads
from zero_tune.config import AsyncPipelineConfig, parse_group
from zero_tune.errors import WorkerFailed
from zero_tune.interfaces import WorkerPool
from zero_tune.parsing import merge
from zero_tune.pipeline.driver import Driver
from zero_tune.pipeline.evaluation import Evaluated
from zero_tune.pipeline.local_pool import build_local_pool
from zero_tune.presets import resolve
from zero_tune.tune.ray_pool import start_ray_pool
from zero_tune.tune.resources import check_fits, placement_group
from zero_tune.types import Snapshot

logger = logging.getLogger(__name__)

SCORE = "evaluation/episode_return_mean"


class MuZeroAsyncTrainable(tune.Trainable):
    """One trial: this process owns learner and replay buffer; collectors and evaluators are actors.

    ``config`` is the nested dict of ``zero_tune.config``. With
    ``policy.async_pipeline.enabled=False`` the same pipeline runs in this process alone. Each result
    carries the latest evaluation (``evaluation/is_new`` tells a fresh one); a checkpoint is asked for
    exactly when a new evaluation arrived that is to be kept, and holds the snapshot that was evaluated.

    Works without Tune: ``t = MuZeroAsyncTrainable(config); t.train(); t.save(); t.restore(path); t.stop()``.
    """

    #: Defaults that the trainable lays below the user's config.
    defaults: Mapping[str, Any] = {"policy": {"async_pipeline": {"eval_at_start": True}}}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """Driver, collector and evaluator bundles of one trial.

        Raises:
            ResourceError: the cluster can never hold them.
        """
        pipe = parse_group(
            AsyncPipelineConfig, merge(cls.defaults, config), "policy.async_pipeline"
        )
        if ray.is_initialized():
            check_fits(pipe)
        return placement_group(pipe)

    def setup(self, config: dict[str, Any]) -> None:
        """Check the config, then build learner, buffer and workers."""
        self._driver: Driver | None = None
        self._pool: WorkerPool | None = None
        self._build(config)

    def _build(self, config: dict[str, Any]) -> None:
        import torch

        self._config, self._env = resolve(merge(self.defaults, config))
        self._restored_at = 0
        torch.set_num_threads(driver_threads(self._config))
        side = build_learner_side(self._config, self._env)
        try:
            self._pool = self._make_pool()
            self._driver = Driver(self._config, side, self._pool)
        except BaseException:
            self.cleanup()  # Tune does not, when setup fails
            raise

    def _make_pool(self) -> WorkerPool:
        pipe = self._config.policy.async_pipeline
        if pipe.enabled and not pipe.ray_local_mode:
            return start_ray_pool(self._config, self._env)
        return build_local_pool(self._config, self._env)

    @property
    def driver(self) -> Driver:
        """The driver of this trial."""
        assert self._driver is not None, "setup() has not run"
        return self._driver

    def step(self) -> dict[str, Any]:
        """One driver iteration.

        Raises:
            WorkerFailed: Ray itself failed. Never a Ray exception: Tune would take it for the death of
                this very process and skip ``cleanup``.
        """
        try:
            result = self.driver.iterate()
        except ray.exceptions.RayError as error:
            raise WorkerFailed(f"{type(error).__name__}: {error}") from None
        wanted = self._config.checkpoint.keep == "all" or bool(result["evaluation/improved"])
        result["should_checkpoint"] = bool(result["evaluation/is_new"]) and wanted
        result["timesteps_this_iter"] = result["num_env_steps_sampled"]
        # Tune itself leaves this one out while it is 0, and a key that comes later is lost in CSV files
        result["timesteps_since_restore"] = self.driver.ledger.envstep - self._restored_at
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """The last evaluated snapshot with its score, and what is needed to go on."""
        driver, settings = self.driver, self._config.checkpoint
        evaluated = driver.evaluated
        checkpoint.write_checkpoint(
            checkpoint_dir,
            self._config,
            self._env,
            snapshot=None if evaluated is None else evaluated.snapshot,
            result=None if evaluated is None else evaluated.result,
            resume=driver.state_dict() if settings.resume_state == "always" else None,
            buffer=driver.buffer if settings.save_replay_buffer else None,
            train_iter=driver.learner.train_iter,
            envstep=driver.ledger.envstep,
        )

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        """Continue from a checkpoint; this trial's own config stays in force.

        Raises:
            SnapshotMismatch: missing, of another policy type, or with other shapes.
        """
        folder = Path(checkpoint_dir)
        manifest = checkpoint.read_manifest(folder)
        checkpoint.check_policy_type(manifest, self._config.policy.type)
        state, driver = checkpoint.read_resume(folder), self.driver
        checkpoint.check_weights(driver.learner.model.state_dict(), state["learner"]["model"])
        evaluated = None
        if checkpoint.has_evaluated(folder):
            _, weights, result = checkpoint.read_evaluated(folder)
            snapshot = Snapshot(result.policy_version, result.envstep, weights)
            evaluated = Evaluated(snapshot, result)
        buffer = checkpoint.buffer_folder(folder)
        if buffer is not None:
            driver.buffer.load(buffer)
        driver.load_state_dict(state, evaluated, buffer_loaded=buffer is not None)
        self._restored_at = driver.ledger.envstep
        if buffer is None:
            logger.warning(
                "resumed at env step %d without a replay buffer: updates wait for another %d env steps "
                "(checkpoint.save_replay_buffer=True keeps it)",
                driver.ledger.envstep,
                self._config.policy.train_start_after_envsteps,
            )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Rebuild everything for another trial in this process (``reuse_actors=True``)."""
        self.cleanup()
        self._build(new_config)
        return True

    def cleanup(self) -> None:
        """End all workers; may be called twice, and after a failed ``setup``."""
        pool, self._pool = getattr(self, "_pool", None), None
        self._driver = None
        if pool is not None:
            pool.shutdown(min(5.0, self._config.policy.async_pipeline.shutdown_timeout_s))


class MuZeroSyncTrainable(MuZeroAsyncTrainable):
    """The sync pipeline: collect, train and evaluate in turn, in one process."""

    defaults: Mapping[str, Any] = merge(
        MuZeroAsyncTrainable.defaults, {"policy": {"async_pipeline": {"enabled": False}}}
    )
