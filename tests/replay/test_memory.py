from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.replay.segments import make_segment
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import ActionSpec, EnvSpec

FRAME = 96 * 96
ATARI = EnvSpec("frames", (1, 96, 96), "uint8", ActionSpec("discrete", 3))


def make_buffer(capacity: int, env: EnvSpec = ATARI) -> ReplayBuffer:
    return ReplayBuffer(env, capacity=capacity, num_slots=3, frame_stack=4)


def test_a_stacked_frame_is_stored_once_as_bytes() -> None:
    """Beside its 9,216 pixels a row holds about 130 bytes of numbers, not three more frames."""
    buffer = make_buffer(1024)
    assert FRAME < buffer.stats()["bytes_per_row"] < FRAME + 200
    buffer.append(make_segment(length=20, end="terminated", env=ATARI))
    stacked = buffer.observations(np.arange(20))
    assert stacked.shape == (20, 4, 96, 96) and stacked.dtype == np.uint8


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's process table")
def test_memory_is_flat_once_the_ring_is_full() -> None:
    buffer = make_buffer(1000)
    rng = np.random.default_rng(0)
    segment = make_segment(length=25, end="terminated", env=ATARI)
    sizes = []
    for episode in range(400):
        segment.episode_id = episode
        buffer.append(segment)
        if buffer.can_sample(32):
            sample = buffer.sample(32, rng)
            buffer.observations(buffer.window(sample.row).rows[:, :6])
            buffer.update_priority(sample.row, sample.generation, rng.random(32))
        if episode >= 50 and episode % 50 == 0:
            sizes.append(resident_bytes())
    assert buffer.stats()["fill"] == 1.0
    assert max(sizes) - sizes[0] < 0.1 * sizes[0]
