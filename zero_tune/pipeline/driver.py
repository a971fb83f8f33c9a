"""The driver: the only owner of learner and buffer, and the loop that keeps its workers busy.

Sync is async with a pool that finishes at once. In sequential mode (sync, or ``deterministic``) only one
thing happens at a time: a collect, the whole budget it paid for, or an evaluation. Both pools then see the
same order of events, and the results are equal to the bit.
"""

from __future__ import annotations

import time
from typing import Any

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
from zero_tune.pipeline.metrics import Recorder
from zero_tune.pipeline.publisher import Publisher
from zero_tune.pipeline.report import Progress, Reporter
from zero_tune.types import CollectTask, EvalTask

#: Incarnations that fit a stream number; later ones start over.
_INCARNATIONS = 4096


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
        self._reporter = Reporter(self)
        self._next_task = 0
        self._incarnation = 0
        self._deadline = float("inf")
        self._batch = need(policy.batch_size, "policy.batch_size")
        self._start_at = need(
            policy.train_start_after_envsteps, "policy.train_start_after_envsteps"
        )

    def iterate(self) -> dict[str, Any]:
        """Run until the iteration's limits, an evaluation, or the end.

        The first iteration waits for the evaluation of the initial weights if that is asked for, so that
        the first report has a real score.

        Returns:
            Flat keys, the same set every time; ``done`` is true in the last report.

        Raises:
            WorkerFailed: workers were lost more often than ``max_actor_restarts`` allows.
            ZeroTuneError: whatever learner, buffer or a worker found wrong with the data.
        """
        before, its = Progress.of(self), self.config.iteration
        self._deadline = before.time + its.max_time_s
        while not self.done and not self.evaluations.arrived:
            self.turn()
            now = Progress.of(self)
            elapsed, steps = now.time - before.time, now.envstep - before.envstep
            updates = now.train_iter - before.train_iter
            if self.evaluations.awaits_first:
                continue
            enough = (
                elapsed >= its.min_time_s
                and steps >= its.min_env_steps
                and updates >= its.min_train_iters
                and (steps or updates)
            )
            if elapsed >= its.max_time_s or (enough and self.budgets.at_boundary):
                break
        self.done = self.done or self._complete()
        if not self.sequential and not self.done:
            self._launch()  # workers go on while the caller handles the report
        return self._reporter.report(before)

    def turn(self) -> None:
        """Absorb results, launch work, train a chunk; wait for a worker if there is nothing to train."""
        events = self.pool.poll(0.0)
        self._absorb(events)
        if self.evaluations.arrived or (events and self.sequential):
            return
        self._launch()
        if self._train_chunk():
            return
        if self._exhausted() and not self.evaluations.pending:
            if self._complete():
                self.done = True
                return
            self._request_evaluation()
        with self.recorder.timers.measure("wait"):
            events = self.pool.poll(self.config.policy.async_pipeline.poll_interval_s)
        self._absorb(events)

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
        self.pool.respawn(event.worker, event.kind, self._next_incarnation())

    def _next_incarnation(self) -> int:
        """Distinguishes the streams and random numbers of a replacement from its predecessors'."""
        self._incarnation = (self._incarnation + 1) % _INCARNATIONS
        return self._incarnation

    def _launch(self) -> None:
        if self.evaluations.due(self.learner.train_iter) and not self.stop_requested:
            self._request_evaluation()
        self.evaluations.launch()
        while self._may_collect():
            idle = list(self.pool.idle_collectors())
            if not idle:
                return
            self._launch_collect(idle[self._next_task % len(idle)])

    def _request_evaluation(self) -> None:
        envstep = self.ledger.envstep
        self.evaluations.request(self.publisher.snapshot(envstep), envstep)

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
            return not self._busy() and not self._can_train()
        if self.collects_inflight >= need(pipe.max_collect_inflight, "max_collect_inflight"):
            return False
        limit = need(pipe.max_train_budget_queue_size, "max_train_budget_queue_size")
        return not self._gate_open() or len(self.budgets) + self.collects_inflight < limit

    def _busy(self) -> bool:
        return self.collects_inflight > 0 or self.evaluations.pending > 0

    def _collection_ended(self) -> bool:
        policy = self.config.policy
        if self.stop_requested or self._train_iters_left() <= 0:
            return True
        return policy.max_env_step is not None and self.ledger.envstep >= policy.max_env_step

    def _gate_open(self) -> bool:
        started = self.ledger.envstep >= self._start_at or self._collection_ended()
        return started and self.buffer.can_sample(self._batch)

    def _train_iters_left(self) -> float:
        most = self.config.policy.max_train_iter
        return float("inf") if most is None else most - self.learner.train_iter

    def _can_train(self) -> bool:
        if self.stop_requested or self.budgets.head is None or self._train_iters_left() <= 0:
            return False
        return self._gate_open()

    def _train_chunk(self) -> bool:
        """Up to ``max_train_chunk_steps`` updates, within the budget and the iteration's time.

        Results are taken in, and finished workers given new work, after each.
        """
        for done in range(self.config.policy.async_pipeline.max_train_chunk_steps):
            if not self._can_train() or (self.sequential and self._busy()):
                return done > 0
            self._update()
            self._absorb(self.pool.poll(0.0))
            self._launch()
            if self.evaluations.arrived or self.budgets.at_boundary:
                break
            # Large networks: updates of many seconds each must not keep a report waiting.
            if time.perf_counter() >= self._deadline:
                break
        return True

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
            with self.recorder.timers.measure("reanalyze"):
                self.recorder.positions_reanalyzed += self.side.reanalyzer.run_pass()

    def _exhausted(self) -> bool:
        """Whether nothing is left to collect or to train on."""
        if self._can_train() or not self._collection_ended():
            return False
        trainable = not self.stop_requested and self._train_iters_left() > 0
        return not (trainable and self.collects_inflight)

    def _complete(self) -> bool:
        """Whether the trial is over: the last weights are scored, or an earlier score was good enough."""
        scored = self.stop_requested or self.evaluations.covers(self.learner.train_iter)
        return self._exhausted() and scored and not self.evaluations.pending

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
            "evaluations": self.evaluations.state_dict(),
            "episodes_lifetime": self.recorder.episodes_lifetime,
            "next_task": self._next_task,
            "incarnation": self._incarnation,
        }

    def load_state_dict(
        self, state: dict[str, Any], evaluated: Evaluated | None, *, buffer_loaded: bool = False
    ) -> None:
        """Continue from ``state_dict``.

        Work in flight is forgotten, and the loaded weights are published before the next collect. Values
        that come from the config (the learning rate, say) are this trial's own. Without the saved buffer
        the present one is emptied, and ``train_start_after_envsteps`` is waited for anew.

        Args:
            evaluated: the evaluation that the checkpoint holds.
            buffer_loaded: the buffer already holds the saved content.
        """
        self.learner.load_state_dict(state["learner"])
        self.side.batch_maker.load_state_dict(state["batch_maker"])
        self.side.reanalyzer.load_state_dict(state["reanalyzer"])
        self.budgets.load_state_dict(state["budgets"])
        self.ledger.load_state_dict(state["ledger"])
        self.evaluations.load_state_dict(state["evaluations"], evaluated)
        self.recorder.episodes_lifetime = int(state["episodes_lifetime"])
        self._next_task = int(state["next_task"])
        self._incarnation = max(self._incarnation, int(state["incarnation"]))
        self.collects_inflight = 0
        self.stop_requested = self.done = False
        if buffer_loaded:
            for stream in self.buffer.open_streams:
                self.buffer.close_stream(stream)
        else:
            self.buffer.clear()
        start = self.config.policy.train_start_after_envsteps or 0
        self._start_at = start if buffer_loaded else start + self.ledger.envstep
        self.publisher.reset()
        self.pool.invalidate(self._next_incarnation())
