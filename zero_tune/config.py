"""Configuration: a plain nested dict in, frozen and validated dataclasses out.

Keys that exist in LightZero keep their names. A value of ``None`` means "from the preset of the policy
type and environment family, or from the environment's spaces"; ``presets.resolve`` fills every one of
them in before anything is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zero_tune.errors import ConfigError
from zero_tune.parsing import get_path, key, parse

T = TypeVar("T")


@dataclass(frozen=True)
class EnvConfig:
    """``env.*``: which environment, how many copies, and the Atari protocol."""

    env_id: str | Callable[..., Any] = key(
        "CartPole-v1", "gymnasium id, 'module:id', or a callable"
    )
    kwargs: dict[str, Any] = key({}, "passed to the environment's constructor")
    eval_kwargs: dict[str, Any] = key(
        {}, "on top of kwargs in evaluation, e.g. {'opponent': 'random'}"
    )
    collector_env_num: int = key(8, "environments per collector actor", ge=1)
    evaluator_env_num: int = key(3, "environments per evaluator actor", ge=1)
    n_evaluator_episode: int = key(8, "episodes per evaluation", ge=1)
    max_episode_steps: int | None = key(None, "truncate collected episodes here", ge=1)
    eval_max_episode_steps: int = key(27_000, "truncate evaluation episodes here", ge=1)
    stop_value: float | None = key(None, "stop when an evaluation's mean reaches this")
    channel_layout: str | None = key(
        None, "layout of image observations", choices=(None, "channels_first", "channels_last")
    )
    image_size: int = key(64, "side of an Atari frame", choices=(64, 84, 96))
    gray_scale: bool = key(True, "Atari frames in one channel")
    frame_skip: int = key(4, "emulator frames per agent step (Atari)", ge=1)
    repeat_action_probability: float = key(0.0, "sticky actions (Atari)", ge=0, le=1)
    noop_max: int = key(30, "random no-ops after an Atari reset", ge=0)
    episode_life: bool = key(True, "a lost life ends the learning episode (collection only)")
    clip_rewards: bool = key(True, "sign of the reward (Atari collection only)")
    full_action_space: bool = key(False, "all 18 Atari actions")


@dataclass(frozen=True)
class ModelConfig:
    """``policy.model.*``: the network."""

    model_type: str | None = key(None, "encoder kind", choices=(None, "conv", "mlp"))
    observation_shape: tuple[int, ...] | None = key(None, "stacked shape; checked against the env")
    action_space_size: int | None = key(None, "number of actions; checked against the env")
    frame_stack_num: int | None = key(None, "frames per observation", ge=1)
    num_res_blocks: int = key(1, "residual blocks per stage", ge=1)
    num_channels: int | None = key(None, "latent channels C (conv)", ge=4)
    downsample: bool | None = key(None, "strided stem for large images")
    norm_type: str | None = key(None, "normalisation", choices=(None, "BN", "LN"))
    latent_norm: str | None = key(
        None, "", choices=(None, "none", "minmax", "simnorm", "layernorm")
    )
    latent_state_dim: int | None = key(None, "latent width D (mlp)", ge=8)
    fc_hidden: int | None = key(None, "hidden width of the heads", ge=8)
    reward_support_range: tuple[int, int, int] | None = key(None, "(start, stop, step) in h-space")
    value_support_range: tuple[int, int, int] | None = key(None, "(start, stop, step) in h-space")
    discrete_action_encoding_type: str = key(
        "one_hot", "action planes (conv)", choices=("one_hot", "not_one_hot")
    )
    res_connection_in_dynamics: bool = key(True, "next = f(s, a) + s (mlp)")
    last_linear_layer_init_zero: bool = key(True, "heads start at value 0, uniform policy")
    self_supervised_learning_loss: bool | None = key(None, "SimSiam consistency networks")
    proj_hid: int = key(1024, "SimSiam projection width", ge=8)
    pred_hid: int = key(512, "SimSiam prediction hidden width", ge=8)
    context_length_init: int = key(4, "steps between re-encodings (context, rnn)", ge=1)
    rnn_hidden_size: int | None = key(None, "GRU width (rnn_full_obs)", ge=8)
    lstm_hidden_size: int | None = key(None, "LSTM width (value prefix)", ge=8)
    lstm_horizon_len: int = key(5, "value prefix restarts every so many steps", ge=1)
    sigma_type: str = key("conditioned", "", choices=("conditioned", "independent", "fixed"))
    fixed_sigma_value: float = key(0.3, "", gt=0)
    bound_type: str | None = key(None, "bound on the mean", choices=(None, "tanh"))
    init_w: float = key(3e-3, "init range of mean and log-sigma layers", gt=0)
    chance_space_size: int | None = key(None, "chance codes C (stochastic)", ge=1)
    embed_dim: int | None = key(None, "token width (unizero)", ge=8)
    num_layers: int = key(2, "transformer blocks", ge=1)
    num_heads: int | None = key(None, "attention heads", ge=1)
    dropout: float | None = key(None, "transformer dropout", ge=0, le=0.9)
    rotary_emb: bool = key(True, "rotary positions; False: learned")
    infer_context_length: int = key(4, "timesteps M in a root's context", ge=1)
    group_size: int = key(8, "SimNorm group", ge=2)
    policy_logits_soft_clip: float = key(0.0, "tanh bound on policy logits, 0 = off", ge=0)


@dataclass(frozen=True)
class AsyncPipelineConfig:
    """``policy.async_pipeline.*``: workers, back-pressure, lag."""

    enabled: bool = key(True, "False: the same pipeline in the trial's own process")
    num_collector_actors: int = key(1, "", ge=1)
    num_evaluator_actors: int = key(1, "", ge=1)
    max_collect_inflight: int | None = key(
        None, "collects at once; None = num_collector_actors", ge=1
    )
    max_eval_inflight: int = key(1, "evaluations at once", ge=1)
    max_train_chunk_steps: int = key(4, "updates between two launches", ge=1)
    weight_sync_interval: int = key(1, "publish when the version advanced by this", ge=1)
    max_policy_lag: int | None = key(
        0, "publish when the lag would exceed this; None = unbounded", ge=-1
    )
    max_train_budget_queue_size: int | None = key(None, "None = 2 * num_collector_actors", ge=1)
    eval_at_start: bool = key(False, "evaluate version 0 (the trainable sets True)")
    collector_num_cpus: float = key(1, "", ge=0)
    evaluator_num_cpus: float = key(1, "", ge=0)
    collector_num_gpus: float = key(0, "", ge=0)
    evaluator_num_gpus: float = key(0, "", ge=0)
    buffer_stats_interval: int = key(100, "updates between buffer statistics", ge=1)
    poll_interval_s: float = key(0.1, "longest wait for a worker", gt=0)
    shutdown_timeout_s: float = key(30, "", gt=0)
    ray_local_mode: bool = key(False, "workers in the driver's process")
    driver_num_cpus: float = key(1, "", ge=0)
    driver_num_gpus: float = key(0, "", ge=0)
    placement_strategy: str = key(
        "PACK", "", choices=("PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD")
    )
    collect_timeout_s: float = key(600, "a collect that takes longer is lost", gt=0)
    eval_timeout_s: float = key(1800, "an evaluation that takes longer is lost", gt=0)
    actor_start_timeout_s: float = key(120, "", gt=0)
    max_actor_restarts: int = key(3, "per trial, over all workers", ge=0)
    deterministic: bool = key(False, "collect, then train, in turn: equals sync bit for bit")


@dataclass(frozen=True)
class PolicyConfig:
    """``policy.*``: search, targets, optimisation, schedule."""

    type: str = key("muzero", "one of the ten policy types")
    model: ModelConfig = field(default_factory=ModelConfig)
    async_pipeline: AsyncPipelineConfig = field(default_factory=AsyncPipelineConfig)
    # search
    num_simulations: int | None = key(None, "", ge=1)
    collect_num_simulations: int | None = key(None, "None = num_simulations", ge=1)
    eval_num_simulations: int | None = key(None, "None = num_simulations", ge=1)
    discount_factor: float | None = key(None, "", ge=0, le=1)
    pb_c_base: float = key(19652, "", gt=0)
    pb_c_init: float = key(1.25, "", ge=0)
    value_delta_max: float = key(0.01, "floor of the min-max range", ge=0)
    unvisited_q: str = key("parent_mean", "", choices=("parent_mean", "min", "zero"))
    q_normalization: str = key("tree", "", choices=("tree", "node"))
    count_own_visit: bool = key(True, "a node's own visit counts in the exploration term")
    root_dirichlet_alpha: float = key(0.3, "", gt=0)
    root_noise_weight: float = key(0.25, "", ge=0, le=1)
    max_num_considered_actions: int = key(16, "sequential halving (gumbel)", ge=1)
    gumbel_scale: float = key(1.0, "Gumbel noise in collection", ge=0)
    maxvisit_init: float = key(50, "(gumbel)", ge=0)
    value_scale: float = key(0.1, "(gumbel)", gt=0)
    num_of_sampled_actions: int | None = key(None, "slots K (sampled)", ge=1)
    sampled_prior: str = key("policy", "", choices=("policy", "uniform"))
    chance_selection: str = key("max", "code choice in the tree", choices=("max", "sample"))
    manual_temperature_decay: bool | None = key(None, "1, 0.5, 0.25 over the run")
    fixed_temperature_value: float = key(0.25, "", ge=0)
    threshold_training_steps_for_final_temperature: int = key(100_000, "updates", ge=1)
    eps_greedy_exploration_in_collect: bool = key(False, "")
    eps_start: float = key(1.0, "", ge=0, le=1)
    eps_end: float = key(0.05, "", ge=0, le=1)
    eps_decay: int = key(100_000, "env steps", ge=1)
    eps_type: str = key("linear", "", choices=("linear", "exp"))
    random_collect_envsteps: int = key(0, "uniform legal actions for so many env steps", ge=0)
    # replay and targets
    num_unroll_steps: int | None = key(None, "", ge=1)
    td_steps: int = key(5, "", ge=1)
    batch_size: int | None = key(None, "", ge=1)
    game_segment_length: int | None = key(None, "transitions per segment", ge=1)
    num_segments: int | None = key(None, "segments per collect; None = collector_env_num", ge=1)
    replay_buffer_size: int | None = key(None, "transitions", ge=2)
    replay_ratio: float | None = key(None, "updates per env step", ge=0)
    update_per_collect: int | None = key(None, "fixed number; wins over replay_ratio", ge=0)
    train_start_after_envsteps: int | None = key(None, "", ge=0)
    use_priority: bool | None = key(None, "")
    priority_prob_alpha: float = key(0.6, "", ge=0)
    priority_prob_beta: float = key(0.4, "", ge=0, le=1)
    use_max_priority_for_new_data: bool = key(True, "")
    use_root_value: bool = key(False, "bootstrap from stored search values")
    truncation: str = key("bootstrap", "at a time limit", choices=("bootstrap", "terminal"))
    reanalyze_ratio: float = key(0.0, "share of a batch with fresh policy targets", ge=0, le=1)
    reanalyze_noise: bool = key(True, "")
    reanalyze_outdated: bool = key(True, "reanalyse a batch's oldest rows first")
    buffer_reanalyze_freq: float = key(
        0.0, "passes per budget; < 1: every 1/f budgets; 0 = off", ge=0
    )
    reanalyze_batch_size: int = key(160, "positions per pass", ge=1)
    reanalyze_partition: float = key(0.75, "oldest share of the buffer", gt=0, le=1)
    mini_infer_size: int = key(4096, "rows per target inference call", ge=1)
    use_augmentation: bool | None = key(None, "")
    augmentation: tuple[str, ...] = key(("shift", "intensity"), "")
    # losses
    reward_loss_weight: float = key(1.0, "", ge=0)
    value_loss_weight: float | None = key(None, "", ge=0)
    policy_loss_weight: float = key(1.0, "", ge=0)
    ssl_loss_weight: float | None = key(None, "consistency", ge=0)
    policy_entropy_weight: float | None = key(None, "", ge=0)
    policy_label_smoothing: float = key(0.0, "over legal actions", ge=0, le=1)
    label_smoothing_eps: float = key(0.0, "value and reward", ge=0, le=1)
    policy_loss_type: str = key("cross_entropy", "", choices=("cross_entropy", "kl"))
    normalize_prob_of_sampled_actions: bool = key(False, "")
    afterstate_policy_loss_weight: float = key(1.0, "", ge=0)
    afterstate_value_loss_weight: float = key(0.25, "", ge=0)
    commitment_loss_weight: float = key(1.0, "", ge=0)
    use_true_chance_label_in_chance_encoder: bool = key(False, "")
    latent_loss_weight: float = key(10.0, "next latent (unizero)", ge=0)
    latent_grad_scale: float | None = key(
        None, "gradient at each latent entering the dynamics", ge=0
    )
    # optimisation
    optim_type: str | None = key(None, "", choices=(None, "SGD", "Adam", "AdamW"))
    learning_rate: float | None = key(None, "", gt=0)
    momentum: float = key(0.9, "", ge=0, le=1)
    weight_decay: float | None = key(None, "", ge=0)
    grad_clip_value: float | None = key(None, "global L2 norm", gt=0)
    piecewise_decay_lr_scheduler: bool | None = key(None, "x0.1 and x0.01 late in the run")
    threshold_training_steps_for_final_lr: int = key(50_000, "updates", ge=1)
    cos_lr_scheduler: bool = key(False, "cosine to 0 over lr_total_steps")
    lr_total_steps: int = key(1_000_000, "updates", ge=1)
    lr_warmup_steps: int = key(0, "updates", ge=0)
    target_update_freq: int | None = key(None, "updates between hard copies", ge=1)
    target_update_theta: float | None = key(None, "soft copy after every update", gt=0, le=1)
    adaptive_entropy: bool = key(False, "learned entropy weight (unizero)")
    target_entropy_start_ratio: float = key(0.98, "", ge=0, le=1)
    target_entropy_end_ratio: float = key(0.05, "", ge=0, le=1)
    target_entropy_decay_steps: int = key(500_000, "", ge=1)
    adaptive_entropy_lr: float = key(1e-3, "", gt=0)
    encoder_clip_value: float = key(0.0, "largest latent norm, 0 = off (unizero)", ge=0)
    policy_ls_eps_start: float = key(0.0, "", ge=0, le=1)
    policy_ls_eps_end: float = key(0.0, "", ge=0, le=1)
    policy_ls_eps_decay_steps: int = key(50_000, "", ge=1)
    kv_cache_clear_interval: int = key(2000, "env steps, 0 = off", ge=0)
    # run
    eval_freq: int | None = key(None, "updates between evaluations", ge=1)
    max_env_step: int | None = key(None, "stop collecting here", ge=1)
    max_train_iter: int | None = key(None, "stop training here", ge=1)
    device: str = key("auto", "learner device: auto, cpu, cuda, cuda:N")
    inference_dtype: str = key("float32", "search networks", choices=("float32", "bfloat16"))
    train_dtype: str = key("float32", "autocast in updates", choices=("float32", "bfloat16"))
    num_threads: int | None = key(None, "torch threads per process; None: its CPU share", ge=1)


@dataclass(frozen=True)
class IterationConfig:
    """``iteration.*``: when one ``step()`` of the trainable ends."""

    min_time_s: float = key(1.0, "", ge=0)
    max_time_s: float = key(30.0, "", gt=0)
    min_env_steps: int = key(0, "", ge=0)
    min_train_iters: int = key(0, "", ge=0)


@dataclass(frozen=True)
class CheckpointConfig:
    """``checkpoint.*``: what a checkpoint holds."""

    save_replay_buffer: bool = key(False, "also write the replay buffer (Arrow)")
    resume_state: str = key("always", "", choices=("always", "never"))
    keep: str = key("all", "evaluations that ask for a checkpoint", choices=("all", "improved"))


@dataclass(frozen=True)
class Config:
    """The whole configuration of one trial."""

    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    iteration: IterationConfig = field(default_factory=IterationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    seed: int = key(0, "", ge=0)
    exp_name: str | None = key(None, "output folder of `train`")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """Parse and range-check a nested dict.

        Raises:
            ConfigError: a key is unknown, or a value has the wrong type or range.
        """
        return parse(cls, data)

    def to_dict(self) -> dict[str, Any]:
        """The nested dict that ``from_dict`` turns back into an equal config."""
        return dataclasses.asdict(self)


def parse_group(cls: type[T], data: Mapping[str, Any], path: str) -> T:
    """The group at dotted ``path`` of a nested dict, checked alone; defaults where it is missing.

    Raises:
        ConfigError: as ``Config.from_dict``, with the whole config's keys as remedies.
    """
    group: T = parse(cls, get_path(data, path, {}), f"{path}.", Config)
    return group


#: Keys spelt differently elsewhere, and where their value goes.
ALIASES: dict[str, str] = {
    "policy.use_ture_chance_label_in_chance_encoder": "policy.use_true_chance_label_in_chance_encoder",
    "policy.collector_env_num": "env.collector_env_num",
    "policy.evaluator_env_num": "env.evaluator_env_num",
    "policy.n_evaluator_episode": "env.n_evaluator_episode",
    "policy.num_unroll_step": "policy.num_unroll_steps",
}


def need(value: T | None, dotted: str) -> T:
    """``value``, which ``presets.resolve`` must have filled in.

    Raises:
        ConfigError: it is still None: the config was used without being resolved.
    """
    if value is None:
        raise ConfigError(
            dotted, "has no value yet", None, "Pass the config through presets.resolve."
        )
    return value
