"""Speed and size of the replay buffer: ``python -m benchmarks.replay``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.machine import describe
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import ActionSpec, EnvSpec, Segment


@dataclass(frozen=True)
class Case:
    """One kind of environment and buffer."""

    name: str
    env: EnvSpec
    capacity: int
    frame_stack: int = 1
    history_length: int = 1
    num_unroll_steps: int = 5


CASES = (
    Case("vector", EnvSpec("v", (4,), "float32", ActionSpec("discrete", 2)), 100_000),
    Case("vector, 1M rows", EnvSpec("v", (4,), "float32", ActionSpec("discrete", 2)), 1_000_000),
    Case(
        "vector, history 4",
        EnvSpec("v", (4,), "float32", ActionSpec("discrete", 2)),
        100_000,
        1,
        4,
        10,
    ),
    Case(
        "64x64 bytes, 4 frames",
        EnvSpec("i", (1, 64, 64), "uint8", ActionSpec("discrete", 6)),
        50_000,
        4,
    ),
)
SEGMENT_LENGTH, EPISODE_LENGTH = 20, 200


def segment(case: Case, start: int, rng: np.random.Generator) -> Segment:
    """One random segment of an episode of EPISODE_LENGTH steps."""
    length, actions = SEGMENT_LENGTH, case.env.action.size
    obs = rng.integers(0, 256, (length + 1, *case.env.obs_shape)).astype(case.env.obs_dtype)
    return Segment(
        obs=obs,
        action=rng.integers(actions, size=(length, 1)).astype(np.int32),
        reward=rng.random(length, np.float32),
        root_value=rng.random(length, np.float32),
        pred_value=rng.random(length, np.float32),
        weights=rng.random((length, actions), np.float32),
        candidates=None,
        legal=np.ones((length + 1, actions), np.bool_),
        chance=None,
        to_play=np.full(length + 1, -1, np.int8),
        timestep=np.arange(start, start + length, dtype=np.int32),
        stream_id=0,
        episode_id=0,
        terminated=start + length == EPISODE_LENGTH,
        truncated=False,
        policy_version=0,
    )


def fill(case: Case) -> tuple[ReplayBuffer, float]:
    """A buffer written one and a quarter times over, and microseconds per append once full."""
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(
        case.env,
        capacity=case.capacity,
        num_slots=case.env.action.size,
        frame_stack=case.frame_stack,
        history_length=case.history_length,
        num_unroll_steps=case.num_unroll_steps,
    )
    episode = [segment(case, start, rng) for start in range(0, EPISODE_LENGTH, SEGMENT_LENGTH)]
    while buffer.rows_appended_total < case.capacity:
        for part in episode:
            buffer.append(part)
    started, count = time.perf_counter(), 0
    while buffer.rows_appended_total < 1.25 * case.capacity:
        for part in episode:
            buffer.append(part)
            count += 1
    return buffer, 1e6 * (time.perf_counter() - started) / count


def microseconds(call: Callable[[], object], repeats: int = 200) -> float:
    """Median time of ``call``."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1e6 * float(np.median(times))


def measure(case: Case, batch_size: int, buffer: ReplayBuffer) -> list[float]:
    """Microseconds of sample, window, observations, histories of T+1 states, write-back."""
    rng = np.random.default_rng(1)
    sample = buffer.sample(batch_size, rng)
    window = buffer.window(sample.row)
    states = window.rows[:, : case.num_unroll_steps + 1]
    priority = rng.random(batch_size)
    return [
        microseconds(lambda: buffer.sample(batch_size, rng)),
        microseconds(lambda: buffer.window(sample.row)),
        microseconds(lambda: buffer.observations(states[:, 0])),
        microseconds(lambda: buffer.observations(states)),
        microseconds(lambda: buffer.history(states.reshape(-1))),
        microseconds(lambda: buffer.update_priority(sample.row, sample.generation, priority)),
    ]


def draw_a_batch(buffer: ReplayBuffer, batch_size: int) -> float:
    """Microseconds of sample, window and first observations together, on ever new rows."""
    rng = np.random.default_rng(2)

    def batch() -> None:
        sample = buffer.sample(batch_size, rng)
        window = buffer.window(sample.row)
        buffer.observations(window.rows[:, :1])

    return microseconds(batch)


def save_and_load(buffer: ReplayBuffer) -> tuple[float, float, float]:
    """Seconds to save, seconds to load, megabytes on disk."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        buffer.save(folder)
        saved = time.perf_counter()
        buffer.load(folder)
        loaded = time.perf_counter()
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return saved - started, loaded - saved, size / 1e6


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke-test", action="store_true", help="small buffers, seconds")
    smoke = parser.parse_args().smoke_test
    out = sys.stdout.write
    out(f"{describe('numpy', 'numba', 'pyarrow')}\n\n")
    out("Microseconds, median of 200; T unroll steps, td_steps 5.\n\n")
    out("| case | B | sample | window | obs of t | obs of t..t+T | histories of t..t+T | ")
    out("priorities | new batch | append 20 | bytes per row | save s | load s | MB |\n")
    out("|---|---|" + "---|" * 12 + "\n")
    for case in CASES:
        if smoke:
            case = Case(
                case.name,
                case.env,
                2000,
                case.frame_stack,
                case.history_length,
                case.num_unroll_steps,
            )
        buffer, append = fill(case)
        disk = save_and_load(buffer)
        for batch_size in (64, 256):
            row = [*measure(case, batch_size, buffer), draw_a_batch(buffer, batch_size), append]
            cells = [f"{x:.0f}" for x in row]
            cells += [f"{buffer.stats()['bytes_per_row']:.0f}", *(f"{x:.2f}" for x in disk[:2])]
            out(f"| {case.name} | {batch_size} | {' | '.join(cells)} | {disk[2]:.0f} |\n")


if __name__ == "__main__":
    main()
