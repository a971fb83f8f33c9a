"""Whole-pipeline speed on the work that LightZero's segment pipeline was measured on.

CartPole-v0, 8 environments, 8 segments of 50 per collect, 25 simulations, 100 updates per collect, batch
64, unroll 5, Adam 3e-3, MLP latent 128, consistency weight 2. LightZero's figures (its own code, commit
9f717c80, another two-core machine): sync 20.0 env steps/s and 4.6 updates/s; async with one collector 31.8
and 7.5; 2.5 GB for its process tree; first collect done after 10.3 s.

"tree MB", at the end of the run, counts a page that several processes share once, "resident MB" once per
process.

    python -m benchmarks.pipeline [--seconds 60] [--mode sync|async|both]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from benchmarks.machine import describe, tree_memory_mb

WORK: dict[str, Any] = {
    "env": {"env_id": "CartPole-v0", "collector_env_num": 8, "n_evaluator_episode": 3},
    "iteration": {"min_time_s": 1.0},
    "policy": {
        "num_segments": 8,
        "game_segment_length": 50,
        "num_simulations": 25,
        "update_per_collect": 100,
        "batch_size": 64,
        "num_unroll_steps": 5,
        "td_steps": 5,
        "optim_type": "Adam",
        "learning_rate": 3e-3,
        "ssl_loss_weight": 2.0,
        "train_start_after_envsteps": 0,
        "eval_freq": 1_000_000,
        "max_env_step": 10_000_000,
        "async_pipeline": {"eval_at_start": False},
        "model": {"latent_state_dim": 128},
    },
}
LIGHTZERO = {"sync": (20.0, 4.6), "async": (31.8, 7.5)}


def measure(mode: str, seconds: float) -> dict[str, float]:
    """Rates over ``seconds`` after the first budget, and what start-up and memory cost."""
    from zero_tune.parsing import merge
    from zero_tune.tune.trainable import MuZeroAsyncTrainable

    over = {"policy": {"async_pipeline": {"enabled": mode == "async"}}}
    start = time.perf_counter()
    trial = MuZeroAsyncTrainable(merge(WORK, over))
    driver = trial.driver
    while driver.ledger.envstep == 0:
        driver.turn()
    first = time.perf_counter() - start
    while driver.learner.train_iter < 100:
        trial.train()
    steps, updates, since = driver.ledger.envstep, driver.learner.train_iter, time.perf_counter()
    while time.perf_counter() - since < seconds:
        trial.train()
    took = time.perf_counter() - since
    memory = tree_memory_mb()
    out = {
        "env steps/s": (driver.ledger.envstep - steps) / took,
        "updates/s": (driver.learner.train_iter - updates) / took,
        "first collect s": first,
        "MB": memory[0],
        "resident MB": memory[1],
    }
    trial.stop()
    return out


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mode", choices=("sync", "async", "both"), default="both")
    args = parser.parse_args()
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    print(describe("torch", "numpy", "numba", "ray"))
    print(
        "mode   env steps/s  (x LightZero)  updates/s  (x LightZero)  1st collect s  tree MB  resident MB"
    )
    for mode in ("sync", "async") if args.mode == "both" else (args.mode,):
        row = measure(mode, args.seconds)
        steps, updates = LIGHTZERO[mode]
        print(
            f"{mode:5}  {row['env steps/s']:11.1f}  {row['env steps/s'] / steps:13.1f}"
            f"  {row['updates/s']:9.1f}  {row['updates/s'] / updates:13.1f}"
            f"  {row['first collect s']:13.1f}  {row['MB']:7.0f}  {row['resident MB']:11.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
