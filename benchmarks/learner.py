"""Speed of one update, batch making apart: ``python -m benchmarks.learner [--type muzero ...]``.

The buffer holds a real collect of each environment; one torch thread; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.machine import describe

CASES = (
    ("muzero", "CartPole-v1"),
    ("muzero_context", "CartPole-v1"),
    ("muzero_rnn_full_obs", "CartPole-v1"),
    ("efficientzero", "CartPole-v1"),
    ("sampled_muzero", "Pendulum-v1"),
    ("gumbel_muzero", "CartPole-v1"),
    ("stochastic_muzero", "CartPole-v1"),
    ("unizero", "CartPole-v1"),
    ("muzero", "zero_tune/Catch-v0"),
    ("unizero", "zero_tune/Catch-v0"),
)


def measure(
    policy_type: str, env_id: str, updates: int, batch_size: int | None
) -> dict[str, float]:
    """Milliseconds (medians) of batch making and of the update."""
    from zero_tune.assembly import build_collector, build_learner_side
    from zero_tune.presets import resolve
    from zero_tune.types import CollectTask

    user = {
        "env": {"env_id": env_id, "collector_env_num": 8},
        "policy": {
            "type": policy_type,
            "num_segments": 16,
            "num_simulations": 2,
            "batch_size": batch_size,
        },
    }
    config, env = resolve(user)
    side = build_learner_side(config, env)
    collector = build_collector(config, env, 0)
    collector.load(side.learner.snapshot(0))
    for number in range(4):
        result = collector.collect(CollectTask(number, 0, 0, 0, 1.0, 0.0))
        for segment in result.segments:
            side.buffer.append(segment)
    collector.close()
    making, updating = [], []
    for _ in range(updates):
        start = time.perf_counter()
        batch = side.batch_maker.make()
        middle = time.perf_counter()
        side.learner.update(batch)
        making.append(middle - start)
        updating.append(time.perf_counter() - middle)
    return {
        "batch": 1e3 * statistics.median(making),
        "update": 1e3 * statistics.median(updating),
        "size": len(batch.weight),
        "bootstrapped": side.batch_maker.values.evaluated_total / updates,
    }


def main() -> None:
    """Print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--type", nargs="+", help="policy types; all by default")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--batch-size", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(describe("torch", "numpy"))
    print(f"{'type':22} {'environment':20} batch size  update ms  making ms  values/update")
    for policy_type, env_id in CASES:
        if args.type and policy_type not in args.type:
            continue
        row = measure(policy_type, env_id, args.updates, args.batch_size)
        print(
            f"{policy_type:22} {env_id:20} {row['size']:10} {row['update']:10.1f}"
            f" {row['batch']:10.2f} {row['bootstrapped']:14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
