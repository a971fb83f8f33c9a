"""What each policy type learns on small tasks: the ladder's first rung.

    python -m benchmarks.learning --list
    python -m benchmarks.learning muzero-cartpole --seeds 0 1 2 [--async-pipeline]

Each run trains until its score reaches ``must`` or its env steps are spent; the score is the mean return of
the evaluated snapshot over fixed-seed episodes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import describe


@dataclass(frozen=True)
class Rung:
    """One policy type on one task."""

    policy_type: str
    env_id: str
    must: float
    max_env_step: int
    policy: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    episodes: int = 50


_CUE = {"kwargs": {"L": 4}}
LADDER: dict[str, Rung] = {
    "muzero-cartpole": Rung("muzero", "CartPole-v1", 475, 30_000),
    "muzero-catch": Rung("muzero", "zero_tune/Catch-v0", 0.95, 30_000),
    "muzero-tictactoe": Rung(
        "muzero",
        "zero_tune/TicTacToe-v0",
        0.9,
        30_000,
        env={"eval_kwargs": {"opponent": "random"}},
        episodes=200,
    ),
    "context-memory": Rung(
        "muzero_context",
        "zero_tune/MemoryCue-v0",
        0.8,
        30_000,
        {"model": {"context_length_init": 6}, "num_unroll_steps": 6},
        _CUE,
    ),
    "rnn-memory": Rung(
        "muzero_rnn_full_obs",
        "zero_tune/MemoryCue-v0",
        0.8,
        30_000,
        {"model": {"context_length_init": 6}, "num_unroll_steps": 6},
        _CUE,
    ),
    "efficientzero-cartpole": Rung("efficientzero", "CartPole-v1", 400, 30_000),
    "efficientzero-catch": Rung("efficientzero", "zero_tune/Catch-v0", 0.8, 30_000),
    "sampled_efficientzero-reach": Rung(
        "sampled_efficientzero", "zero_tune/PointReach-v0", -3.3, 20_000
    ),
    "sampled_muzero-reach": Rung(
        "sampled_muzero", "zero_tune/PointReach-v0", -6.0, 30_000, env={"kwargs": {"d": 2}}
    ),
    "sampled_muzero-pendulum": Rung("sampled_muzero", "Pendulum-v1", -500, 40_000),
    "gumbel-cartpole": Rung("gumbel_muzero", "CartPole-v1", 350, 30_000, {"num_simulations": 4}),
    "stochastic-chance": Rung(
        "stochastic_muzero", "zero_tune/ChanceMatch-v0", 8.0, 40_000, {"num_simulations": 50}
    ),
    "stochastic-2048": Rung(
        "stochastic_muzero", "zero_tune/MiniGame2048-v0", 60, 40_000, {"num_simulations": 50}
    ),
    "unizero-cartpole": Rung("unizero", "CartPole-v1", 475, 15_000),
    "unizero-memory": Rung(
        "unizero",
        "zero_tune/MemoryCue-v0",
        0.95,
        20_000,
        {"num_unroll_steps": 6, "model": {"infer_context_length": 6}},
        _CUE,
    ),
    "sampled_unizero-reach": Rung("sampled_unizero", "zero_tune/PointReach-v0", -3.5, 30_000),
}


def config_of(rung: Rung, seed: int, async_pipeline: bool, folder: str) -> dict[str, Any]:
    """The nested dict of one run."""
    slots = min(rung.episodes, 25)
    return {
        "env": {
            "env_id": rung.env_id,
            "n_evaluator_episode": rung.episodes,
            "evaluator_env_num": slots,
            "stop_value": rung.must,
            **rung.env,
        },
        "policy": {
            "type": rung.policy_type,
            "max_env_step": rung.max_env_step,
            **rung.policy,
            "async_pipeline": {"enabled": async_pipeline},
        },
        "seed": seed,
        "exp_name": folder,
    }


def run(rung: Rung, seed: int, async_pipeline: bool = False) -> dict[str, float]:
    """Train one seed; the best score, when it came, and the time it took."""
    from zero_tune.entry import train

    best = {"score": float("-inf"), "env_steps": 0.0, "seconds": 0.0}
    start = time.perf_counter()

    def note(report: dict[str, Any]) -> None:
        score = report["evaluation/episode_return_mean"]
        if report["evaluation/is_new"] and score > best["score"]:
            best["score"] = score
            best["env_steps"] = report["evaluation/envstep"]
            best["seconds"] = time.perf_counter() - start

    with tempfile.TemporaryDirectory() as folder:
        train(config_of(rung, seed, async_pipeline, folder), on_report=note)
    best["total"] = time.perf_counter() - start
    return best


def main() -> None:
    """Print one row per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rungs", nargs="*", metavar="RUNG")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--async-pipeline", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(LADDER))
        return
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    print(describe("torch", "numpy", "numba", "ray"))
    print(f"{'rung':28} seed  {'score':>8} {'must':>8}  env steps  seconds  passed")
    for name in args.rungs:
        rung = LADDER[name]
        for seed in args.seeds:
            best = run(rung, seed, args.async_pipeline)
            passed = "yes" if best["score"] >= rung.must else "no"
            print(
                f"{name:28} {seed:4}  {best['score']:8.2f} {rung.must:8.2f}  "
                f"{best['env_steps']:9.0f}  {best['seconds']:7.0f}  {passed}",
                flush=True,
            )


if __name__ == "__main__":
    main()
