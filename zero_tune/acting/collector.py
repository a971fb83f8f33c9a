"""Steps environments in lockstep and cuts what happens into segments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from zero_tune.acting.agent import Agent
from zero_tune.acting.segments import SegmentBuilder
from zero_tune.config import Config, need
from zero_tune.types import (
    Array,
    CollectResult,
    CollectTask,
    EnvSpec,
    SearchResult,
    Segment,
    Snapshot,
)

if TYPE_CHECKING:
    from zero_tune.envs.vector import EnvBatch, StepResult

_STREAM_BITS = 12


@dataclass
class _Harvest:
    """What one collect has gathered so far."""

    segments: list[Segment] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    steps: int = 0
    entropy: float = 0.0


class SegmentCollector:
    """See ``interfaces.Collector``. Environments and open segments persist between collects.

    Args:
        envs: one slot per environment.
        actor_id: number of this collector.
        incarnation: how often it was replaced; streams of a lost collector are never continued.
    """

    def __init__(
        self,
        config: Config,
        env: EnvSpec,
        envs: EnvBatch,
        agent: Agent,
        *,
        actor_id: int,
        incarnation: int = 0,
    ) -> None:
        self._config, self._envs, self._agent = config, envs, agent
        self._actor_id = actor_id
        policy = config.policy
        length = need(policy.game_segment_length, "policy.game_segment_length")
        first = ((actor_id << _STREAM_BITS) + incarnation) << _STREAM_BITS
        slots = agent.search.num_slots
        sampled = policy.num_of_sampled_actions is not None
        self._streams = first + np.arange(envs.num_envs)
        self._builders = [
            SegmentBuilder(env, length, slots, sampled, int(stream)) for stream in self._streams
        ]
        self._all = np.arange(envs.num_envs)
        self._steps = np.zeros(envs.num_envs, np.int64)
        self._clear_every = policy.kv_cache_clear_interval
        self._started = False
        self._target = need(policy.num_segments, "policy.num_segments")

    def load(self, snapshot: Snapshot) -> None:
        """Use a snapshot's weights; nothing derived from older ones survives."""
        if self._agent.load(snapshot):
            self._agent.model.recompute_pos_emb_diff_and_clear_cache()

    def collect(self, task: CollectTask) -> CollectResult:
        """Step all slots until ``num_segments`` segments are finished."""
        start = time.perf_counter()
        if not self._started:
            self._reset(self._all)
            self._started = True
        harvest = _Harvest()
        epsilon = 1.0 if task.random_policy else task.epsilon
        while len(harvest.segments) < self._target:
            result = self._agent.act(
                self._streams,
                self._steps,
                explore=True,
                temperature=task.temperature,
                epsilon=epsilon,
            )
            self._step(result, harvest, task.version)
        return CollectResult(
            segments=harvest.segments,
            envstep_delta=harvest.steps,
            episode_returns=harvest.returns,
            episode_lengths=harvest.lengths,
            policy_version=task.version,
            actor_id=self._actor_id,
            seconds=time.perf_counter() - start,
            open_steps=sum(b.size for b in self._builders),
            search_entropy=harvest.entropy / max(1, harvest.steps),
        )

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _step(self, result: SearchResult, harvest: _Harvest, version: int) -> None:
        self._agent.history.set_action(self._all, result.action)
        step = self._envs.step(self._all, result.action)
        self._steps += 1
        harvest.steps += len(self._all)
        harvest.entropy += float(result.entropy.sum())
        seen = step.observation
        for i, builder in enumerate(self._builders):
            builder.add(
                result,
                i,
                step.reward[i],
                step.chance[i],
                seen.obs[i],
                seen.legal[i],
                seen.to_play[i],
                version,
            )
            ended = bool(step.terminated[i] or step.truncated[i])
            if ended or builder.full:
                harvest.segments.append(
                    builder.finish(bool(step.terminated[i]), bool(step.truncated[i]))
                )
        self._count_episodes(step, harvest)
        ended_slots = np.flatnonzero(step.terminated | step.truncated)
        going = np.flatnonzero(~(step.terminated | step.truncated))
        if len(going):
            self._agent.observe(going, seen.obs[going], seen.legal[going], seen.to_play[going])
        if len(ended_slots):
            self._reset(ended_slots)
        if self._clear_every and self._steps[0] % self._clear_every == 0:
            self._agent.model.clear_caches()

    def _count_episodes(self, step: StepResult, harvest: _Harvest) -> None:
        for i in np.flatnonzero(step.episode_over):
            harvest.returns.append(float(step.episode_return[i]))
            harvest.lengths.append(int(step.episode_length[i]))

    def _reset(self, slots: Array) -> None:
        first = self._envs.reset(slots)
        self._agent.history.reset(slots)
        self._agent.observe(slots, first.obs, first.legal, first.to_play)
        for row, slot in enumerate(slots):
            self._builders[slot].start_episode(
                first.obs[row], first.legal[row], int(first.to_play[row])
            )
