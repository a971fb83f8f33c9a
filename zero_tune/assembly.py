"""Puts the parts together: what one worker needs, and what the driver's learner side needs.

Every function takes a resolved ``Config`` and its ``EnvSpec`` (``presets.resolve``), so that workers in
other processes build exactly what the driver checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zero_tune.config import Config, need
from zero_tune.policies import build_search, loss_weights, policy_spec, seeded_model
from zero_tune.types import EnvSpec

if TYPE_CHECKING:
    import torch

    from zero_tune.acting.agent import Agent
    from zero_tune.acting.collector import SegmentCollector
    from zero_tune.acting.evaluator import EpisodeEvaluator
    from zero_tune.learning.batch import BatchMaker
    from zero_tune.learning.learner import Learner
    from zero_tune.learning.reanalyze import BufferReanalyzer
    from zero_tune.replay.buffer import ReplayBuffer

#: Distance between the seeds of two workers, and of collectors from evaluators.
WORKER_SEED_STRIDE = 1_000
EVALUATOR_SEED_OFFSET = 100_000


@dataclass
class LearnerSide:
    """What only the driver owns."""

    learner: Learner
    buffer: ReplayBuffer
    batch_maker: BatchMaker
    reanalyzer: BufferReanalyzer


def learner_device(config: Config) -> torch.device:
    """``policy.device``, where ``auto`` is the GPU if there is one."""
    import torch

    name = config.policy.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def driver_threads(config: Config) -> int:
    """Torch threads of the process that learns: ``policy.num_threads``, or its CPU share.

    Without a bound torch takes every core, and two runs on one machine wait for each other's threads: each
    was measured at a tenth of its speed.
    """
    policy = config.policy
    return policy.num_threads or max(1, int(policy.async_pipeline.driver_num_cpus))


def build_agent(config: Config, env: EnvSpec, *, seed: int, num_slots: int) -> Agent:
    """An acting agent for ``num_slots`` environments, on the CPU, with freshly seeded weights."""
    from zero_tune.acting.agent import Agent
    from zero_tune.models.inference import InferenceModel

    model = seeded_model(config.policy, env, config.seed)
    inference = InferenceModel(model, dtype=config.policy.inference_dtype)
    search = build_search(config.policy, env)
    return Agent(config.policy, env, inference, search, num_slots=num_slots, seed=seed)


def build_collector(
    config: Config, env: EnvSpec, actor_id: int, incarnation: int = 0
) -> SegmentCollector:
    """Collector ``actor_id``; a later incarnation replaces a lost one and draws other numbers."""
    from zero_tune.acting.collector import SegmentCollector
    from zero_tune.envs.registry import make_env_batch

    seed = config.seed + WORKER_SEED_STRIDE * actor_id + 7919 * incarnation
    num = config.env.collector_env_num
    envs = make_env_batch(config.env, num, evaluate=False, worker_seed=seed)
    agent = build_agent(config, env, seed=seed, num_slots=num)
    return SegmentCollector(config, env, envs, agent, actor_id=actor_id, incarnation=incarnation)


def build_evaluator(config: Config, env: EnvSpec, actor_id: int = 0) -> EpisodeEvaluator:
    """An evaluator; every evaluator gives the same result for the same task and weights."""
    from zero_tune.acting.evaluator import EpisodeEvaluator
    from zero_tune.envs.registry import make_env_batch

    num = config.env.evaluator_env_num
    seed = config.seed + EVALUATOR_SEED_OFFSET
    envs = make_env_batch(config.env, num, evaluate=True, worker_seed=seed)
    agent = build_agent(config, env, seed=seed, num_slots=num)
    return EpisodeEvaluator(config, env, envs, agent)


def evaluation_seeds(config: Config) -> tuple[int, ...]:
    """One seed per evaluation episode, the same in every evaluation of a trial."""
    first = config.seed + EVALUATOR_SEED_OFFSET
    return tuple(range(first, first + config.env.n_evaluator_episode))


def build_buffer(
    config: Config, env: EnvSpec, *, num_slots: int, history_length: int
) -> ReplayBuffer:
    """An empty replay buffer for segments with ``num_slots`` policy weights a step."""
    from zero_tune.replay.buffer import ReplayBuffer

    policy = config.policy
    sampled = policy_spec(policy.type).proposal == "sample"
    return ReplayBuffer(
        env,
        capacity=need(policy.replay_buffer_size, "policy.replay_buffer_size"),
        num_slots=num_slots,
        candidate_dim=env.action.dim if sampled else 0,
        frame_stack=need(policy.model.frame_stack_num, "policy.model.frame_stack_num"),
        history_length=history_length,
        num_unroll_steps=need(policy.num_unroll_steps, "policy.num_unroll_steps"),
        td_steps=policy.td_steps,
        use_priority=bool(policy.use_priority),
        alpha=policy.priority_prob_alpha,
        beta=policy.priority_prob_beta,
        max_priority_for_new=policy.use_max_priority_for_new_data,
    )


def build_learner_side(config: Config, env: EnvSpec) -> LearnerSide:
    """Learner, buffer, batch maker and buffer reanalysis of one trial."""
    from zero_tune.learning.batch import BatchMaker
    from zero_tune.learning.learner import Learner
    from zero_tune.learning.losses import build_losses
    from zero_tune.learning.reanalyze import BufferReanalyzer

    policy, device = config.policy, learner_device(config)
    model = seeded_model(policy, env, config.seed).to(device)
    search = build_search(policy, env)
    losses = build_losses(policy, env, model, loss_weights(policy))
    learner = Learner(model, losses, policy, env=env, seed=config.seed, device=device)
    buffer = build_buffer(
        config, env, num_slots=search.num_slots, history_length=learner.history_length
    )
    rng = np.random.default_rng((config.seed, 1))
    spec = policy_spec(policy.type)
    maker = BatchMaker(
        policy,
        env,
        buffer,
        learner,
        search,
        rng=rng,
        seed=config.seed,
        value_prefix=spec.value_prefix,
    )
    reanalyzer = BufferReanalyzer(policy, env, buffer, learner, search, seed=config.seed)
    return LearnerSide(learner, buffer, maker, reanalyzer)
