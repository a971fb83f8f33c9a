"""The driver: the only owner of learner and buffer, and the loop that keeps its workers busy.

Sync is async with a pool that finishes at once. In sequential mode (sync, or ``deterministic``) a collect
is launched only when all earlier data has been trained on, and training waits for collects in flight, so
that both pools see the same order of events.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from zero_tune.assembly import LearnerSide, evaluation_seeds
from zero_tune.config import Config, need
from zero_tune.errors import WorkerFailed
from zero_tune.interfaces import WorkerPool
from zero_tune.ops.schedules import exploration_epsilon, visit_temperature
from zero_tune.pipeline.budget import TrainBudgets
from zero_tune.pipeline.evaluation import Evaluated, Evaluations
from zero_tune.pipeline.events import (
    COLLECTOR,
    CollectDone,
    EvalDone,
    Event,
    WorkerError,
    WorkerLost,
)
from zero_tune.pipeline.ledger import Ledger
from zero_tune.pipeline.metrics import Recorder, evaluation_report
from zero_tune.pipeline.publisher import Publisher
from zero_tune.types import CollectTask, EvalTask


class Driver:
    """Runs one trial.

    Args:
        config: resolved.
        side: learner, buffer, batch maker, reanalysis.
        pool: where collects and evaluations run.
    """

    def __init__(self, config: Config, side: LearnerSide, pool: WorkerPool) -> None:
        self.config, self.side, self.pool = config, side, pool
        policy, pipe = config.policy, config.policy.async_pipeline
        self.learner, self.buffer = side.learner, side.buffer
        self.sequential = pipe.deterministic or not pipe.enabled
        self.budgets = TrainBudgets(policy.update_per_collect, policy.replay_ratio or 0.0)
        self.publisher = Publisher(
            side.learner, pool, pipe.weight_sync_interval, pipe.max_policy_lag
        )
        self.evaluations = Evaluations(
            pool,
            need(policy.eval_freq, "policy.eval_freq"),
            pipe.eval_at_start,
            evaluation_seeds(config),
            pipe.max_eval_inflight,
        )
        self.ledger = Ledger(side.buffer)
        self.recorder = Recorder()
        self.collects_inflight = 0
        self.restarts = {"collector": 0, "evaluator": 0}
        self.stop_requested = False
        self.done = False
        self._next_task = 0
        self._buffer_stats: dict[str, float] = side.buffer.stats()
        self._stats_iter = 0
        self._batch = need(policy.batch_size, "policy.batch_size")
        self._start_after = need(
            policy.train_start_after_envsteps, "policy.train_start_after_envsteps"
        )

    def iterate(self) -> dict[str, Any]:
        """Run until the iteration's limits, an evaluation, or the end; returns the report."""
        start, its = time.perf_counter(), self.config.iteration
        steps0, iter0 = self.ledger.envstep, self.learner.train_iter
        while not self.done and not self.evaluations.arrived:
            self.turn()
            elapsed = time.perf_counter() - start
            if self.evaluations.latest is None and self.evaluations.last_iter != 0:
                continue  # the first report waits for the first evaluation
            head = self.budgets.head
            boundary = head is None or head.done == 0
            enough = (
                elapsed >= its.min_time_s
                and self.ledger.envstep - steps0 >= its.min_env_steps
                and self.learner.train_iter - iter0 >= its.min_train_iters
            )
            if (enough and boundary) or elapsed >= its.max_time_s:
                break
        return self._report(time.perf_counter() - start, self.ledger.envstep - steps0, iter0)

    def turn(self) -> None:
        """Absorb results, launch work, train a chunk."""
        self._absorb(self.pool.poll(0.0))
        self._launch()
        if self._train_chunk():
            return
        if self._ended():
            self._finish()
            return
        if not self._idle():
            with self.recorder.timers.measure("wait"):
                events = self.pool.poll(self.config.policy.async_pipeline.poll_interval_s)
            self._absorb(events)

    def _idle(self) -> bool:
        return self.collects_inflight == 0 and self.evaluations.pending == 0

    def _absorb(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, CollectDone):
                self._absorb_collect(event)
            elif isinstance(event, EvalDone):
                self.evaluations.absorb(event)
                if event.result.stop and event.result.train_iter > 0:
                    self.stop_requested = True
            elif isinstance(event, WorkerLost):
                self._replace(event)
            elif isinstance(event, WorkerError):
                raise event.error

    def _absorb_collect(self, event: CollectDone) -> None:
        self.collects_inflight -= 1
        result = event.result
        self.ledger.absorb(event.worker, result)
        self.budgets.add(result.envstep_delta)
        self.recorder.add_collect(result, self.learner.train_iter - result.policy_version)

    def _replace(self, event: WorkerLost) -> None:
        """A lost worker costs its task: count it, close its streams, put another in its place."""
        self.restarts[event.kind] += 1
        if event.kind == COLLECTOR:
            self.ledger.close(event.worker)
            if event.task is not None:
                self.collects_inflight -= 1
        elif isinstance(event.task, EvalTask) and event.snapshot is not None:
            self.evaluations.requeue(event.task, event.snapshot)
        most = self.config.policy.async_pipeline.max_actor_restarts
        if sum(self.restarts.values()) > most:
            raise WorkerFailed(
                f"{event.kind} {event.worker} was lost ({event.reason}); that is more than "
                f"policy.async_pipeline.max_actor_restarts = {most} in this trial"
            )
        self.pool.respawn(event.worker, event.kind)

    def _launch(self) -> None:
        if self.evaluations.due(self.learner.train_iter) and not self.stop_requested:
            self.evaluations.request(
                self.publisher.snapshot(self.ledger.envstep), self.ledger.envstep
            )
        self.evaluations.launch()
        while self._may_collect():
            idle = list(self.pool.idle_collectors())
            if not idle:
                return
            self._launch_collect(idle[self._next_task % len(idle)])

    def _launch_collect(self, worker: int) -> None:
        policy, envstep = self.config.policy, self.ledger.envstep
        with self.recorder.timers.measure("publish"):
            snapshot = self.publisher.for_launch(envstep)
        task = CollectTask(
            self._next_task,
            snapshot.version,
            self.learner.train_iter,
            envstep,
            visit_temperature(policy, self.learner.train_iter),
            exploration_epsilon(policy, envstep),
            envstep < policy.random_collect_envsteps,
        )
        self._next_task += 1
        self.collects_inflight += 1
        self.pool.submit_collect(worker, task)

    def _may_collect(self) -> bool:
        if self._collection_ended():
            return False
        pipe = self.config.policy.async_pipeline
        if self.sequential:
            return self.collects_inflight == 0 and not self._can_train()
        if self.collects_inflight >= (pipe.max_collect_inflight or 1):
            return False
        limit = pipe.max_train_budget_queue_size or 2
        return not self._gate_open() or len(self.budgets) + self.collects_inflight < limit

    def _collection_ended(self) -> bool:
        policy = self.config.policy
        if self.stop_requested or self._train_iters_left() <= 0:
            return True
        return policy.max_env_step is not None and self.ledger.envstep >= policy.max_env_step

    def _gate_open(self) -> bool:
        started = self.ledger.envstep >= self._start_after or self._collection_ended()
        return started and self.buffer.can_sample(self._batch)

    def _train_iters_left(self) -> float:
        most = self.config.policy.max_train_iter
        return float("inf") if most is None else most - self.learner.train_iter

    def _can_train(self) -> bool:
        if self.stop_requested or self.budgets.head is None or self._train_iters_left() <= 0:
            return False
        return self._gate_open() and not (self.sequential and self.collects_inflight)

    def _train_chunk(self) -> bool:
        """Up to ``max_train_chunk_steps`` updates; after each, absorb results and relaunch."""
        trained = False
        for _ in range(self.config.policy.async_pipeline.max_train_chunk_steps):
            if not self._can_train():
                break
            self._update()
            trained = True
            self._absorb(self.pool.poll(0.0))
            self._launch()
            if self.evaluations.arrived:
                break
        return trained

    def _update(self) -> None:
        head, timers = self.budgets.head, self.recorder.timers
        assert head is not None
        self._reanalyze(head.done, head.total)
        with timers.measure("batch"):
            batch = self.side.batch_maker.make()
        lag = self.learner.train_iter - batch.policy_version
        with timers.measure("update"):
            output = self.learner.update(batch)
        if self.config.policy.use_priority:
            self.buffer.update_priority(batch.row, batch.generation, output.priority)
        self.recorder.add_update(output, lag)
        if self.budgets.count_update():
            self.learner.target_model.recompute_pos_emb_diff_and_clear_cache()

    def _reanalyze(self, done: int, total: int) -> None:
        """Buffer passes: f >= 1 per budget, or one every 1/f budgets; 0 = never."""
        freq = self.config.policy.buffer_reanalyze_freq
        if freq <= 0:
            return
        if freq >= 1:
            due = done % max(1, round(total / freq)) == 0
        else:
            due = done == 0 and (self.budgets.completed + 1) % round(1 / freq) == 0
        if due:
            self.side.reanalyzer.run_pass()

    def _ended(self) -> bool:
        return self._collection_ended() and self.collects_inflight == 0 and not self._can_train()

    def _finish(self) -> None:
        """No more data or training: wait for evaluations, score the last version, then be done."""
        if not self.stop_requested and not self.evaluations.covers(self.learner.train_iter):
            self.evaluations.request(
                self.publisher.snapshot(self.ledger.envstep), self.ledger.envstep
            )
        if self.evaluations.pending:
            self.evaluations.launch()
            self._absorb(self.pool.poll(self.config.policy.async_pipeline.poll_interval_s))
            return
        self.done = True

    def _report(self, elapsed: float, new_steps: int, iter0: int) -> dict[str, Any]:
        latest, is_new, improved = self.evaluations.report()
        result = None if latest is None else latest.result
        interval = self.config.policy.async_pipeline.buffer_stats_interval
        if self.learner.train_iter - self._stats_iter >= interval or self._stats_iter == 0:
            self._buffer_stats, self._stats_iter = self.buffer.stats(), self.learner.train_iter
        updates = self.learner.train_iter
        elapsed = max(elapsed, 1e-9)
        out = evaluation_report(result, is_new, updates) | self.recorder.report()
        out |= {f"buffer/{name}": value for name, value in self._buffer_stats.items()}
        out |= {
            "num_env_steps_sampled_lifetime": self.ledger.envstep,
            "num_env_steps_sampled": new_steps,
            "env_runners/env_steps_per_s": new_steps / elapsed,
            "learners/train_iter": updates,
            "learners/updates_per_s": (updates - iter0) / elapsed,
            "learners/replay_ratio_actual": updates / max(1, self.ledger.envstep),
            "buffer/ledger_error": self.ledger.error,
            "buffer/training_started": int(updates > 0),
            "async/inflight_collect": self.collects_inflight,
            "async/budget_queue": len(self.budgets),
            "async/updates_owed": self.budgets.updates_owed,
            "async/published_total": self.publisher.published_total,
            "fault_tolerance/num_collector_restarts": self.restarts["collector"],
            "fault_tolerance/num_evaluator_restarts": self.restarts["evaluator"],
            "fault_tolerance/env_steps_lost": self.ledger.lost_steps,
            "evaluation/improved": int(improved),
            "timers/iteration_s": elapsed,
        }
        # the last evaluations are reported one by one before the trial says that it is done
        out["done"] = self.done and not self.evaluations.arrived
        return {name: _plain(value) for name, value in out.items()}

    @property
    def evaluated(self) -> Evaluated | None:
        """The evaluation of the latest report."""
        return self.evaluations.latest

    def state_dict(self) -> dict[str, Any]:
        """Learner, counters, budgets and generators; plain Python and tensors."""
        return {
            "learner": self.learner.state_dict(),
            "batch_maker": self.side.batch_maker.state_dict(),
            "reanalyzer": self.side.reanalyzer.state_dict(),
            "budgets": self.budgets.state_dict(),
            "ledger": self.ledger.state_dict(),
            "episodes_lifetime": self.recorder.episodes_lifetime,
            "last_eval_iter": self.evaluations.last_iter,
            "best": self.evaluations.best,
            "next_task": self._next_task,
        }

    def load_state_dict(self, state: dict[str, Any], evaluated: Evaluated | None) -> None:
        """Continue from ``state_dict``; work in flight is forgotten, other weights are published."""
        self.pool.invalidate()
        self.collects_inflight = 0
        self.evaluations.forget()
        self.publisher.reset()
        self.learner.load_state_dict(state["learner"])
        self.side.batch_maker.load_state_dict(state["batch_maker"])
        self.side.reanalyzer.load_state_dict(state["reanalyzer"])
        self.budgets.load_state_dict(state["budgets"])
        self.ledger.load_state_dict(state["ledger"])
        self.recorder.episodes_lifetime = int(state["episodes_lifetime"])
        self.evaluations.last_iter = state["last_eval_iter"]
        self.evaluations.best = float(state["best"])
        self.evaluations.latest = evaluated
        self._next_task = int(state["next_task"])
        self.stop_requested = self.done = False


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
