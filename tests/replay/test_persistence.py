from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay.segments import (
    CONTINUOUS,
    IMAGE,
    NUM_SLOTS,
    VECTOR,
    make_segment,
    random_segments,
)
from zero_tune.errors import SnapshotMismatch
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import EnvSpec


def make_buffer(env: EnvSpec = VECTOR, **settings: Any) -> ReplayBuffer:
    defaults: dict[str, Any] = {
        "capacity": 120,
        "num_slots": NUM_SLOTS,
        "frame_stack": 2,
        "history_length": 2,
        "num_unroll_steps": 2,
        "td_steps": 3,
    }
    return ReplayBuffer(env, **{**defaults, **settings})


def run(buffer: ReplayBuffer, segments: list[Any], rng: np.random.Generator) -> list[Any]:
    """Append, draw, write back and read; everything that was read."""
    read: list[Any] = []
    for segment in segments:
        buffer.append(segment)
        if not buffer.can_sample(8):
            continue
        sample = buffer.sample(8, rng)
        window = buffer.window(sample.row)
        read += [*sample, *vars(window).values(), *buffer.history(window.rows[:, 1])]
        read += [buffer.observations(window.rows)]
        buffer.update_priority(sample.row, sample.generation, rng.exponential(size=8))
    buffer.close_stream(1)
    return [*read, *sorted(buffer.stats().items())]


@pytest.mark.parametrize(
    ("env", "dim", "steps"),
    [(VECTOR, 0, 60), (VECTOR, 1, 500), (IMAGE, 0, 300), (CONTINUOUS, 2, 300)],
    ids=["not-full", "sampled", "image", "continuous"],
)
def test_a_loaded_buffer_goes_on_bit_for_bit(
    env: EnvSpec, dim: int, steps: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    segments = random_segments(rng, env=env, steps=2 * steps, candidate_dim=dim)
    half = len(segments) // 2
    original = make_buffer(env, candidate_dim=dim)
    run(original, segments[:half], rng)
    original.save(tmp_path / "replay")
    loaded = make_buffer(env, candidate_dim=dim)
    loaded.append(make_segment(9, env=env, candidate_dim=dim))  # must leave no trace
    loaded.load(tmp_path / "replay")
    assert loaded.stats() == original.stats()
    rows = np.arange(original.capacity)
    np.testing.assert_array_equal(loaded.probability(rows), original.probability(rows))
    np.testing.assert_array_equal(loaded.generation_of(rows), original.generation_of(rows))
    later = [run(b, segments[half:], np.random.default_rng(6)) for b in (original, loaded)]
    assert len(later[0]) == len(later[1]) > 30
    for a, b in zip(*later, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_empty_buffer_round_trips(tmp_path: Path) -> None:
    make_buffer().save(tmp_path)
    loaded = make_buffer()
    loaded.load(tmp_path)
    assert loaded.num_rows == 0 and not loaded.can_sample(1)
    loaded.append(make_segment(length=9, end="terminated"))
    assert loaded.num_drawable == 9


def test_many_record_batches(tmp_path: Path) -> None:
    original = make_buffer(capacity=9000)
    for episode in range(9):
        original.append(make_segment(0, episode, length=1100, end="terminated"))
    original.save(tmp_path)
    loaded = make_buffer(capacity=9000)
    loaded.load(tmp_path)
    rows = np.arange(9000)
    np.testing.assert_array_equal(loaded.observations(rows), original.observations(rows))
    assert loaded.num_drawable == original.num_drawable > 8000


def test_settings_of_the_draws_are_the_loading_buffers(tmp_path: Path) -> None:
    """A changed exponent takes effect, from the stored priorities."""
    original = make_buffer(alpha=1.0)
    original.append(make_segment(length=4, end="terminated"))
    rows = np.arange(4)
    priority = np.array([1.0, 4.0, 9.0, 2.0])
    original.update_priority(rows, original.generation_of(rows), priority)
    original.save(tmp_path)
    root, uniform = make_buffer(alpha=0.5), make_buffer(use_priority=False)
    root.load(tmp_path)
    uniform.load(tmp_path)
    expected = np.sqrt(priority) + 1e-6
    np.testing.assert_allclose(root.probability(rows), expected / expected.sum(), rtol=1e-12)
    np.testing.assert_array_equal(uniform.probability(rows), np.full(4, 0.25))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"capacity": 121}, "capacity is 121 here and 120 in the file"),
        ({"td_steps": 4}, "window_length"),
        ({"frame_stack": 3}, "reach"),
        ({"num_slots": 5}, r"weights is \['float32', 5\]"),
        ({"candidate_dim": 1}, "candidates"),
        ({"env": IMAGE}, "obs"),
    ],
)
def test_a_buffer_of_another_shape_is_refused(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    make_buffer().save(tmp_path)
    with pytest.raises(SnapshotMismatch, match=named):
        make_buffer(**change).load(tmp_path)


def test_missing_and_damaged_files_are_refused_and_leave_the_buffer_empty(tmp_path: Path) -> None:
    buffer = make_buffer()
    buffer.append(make_segment(length=9, end="terminated"))
    buffer.save(tmp_path / "good")
    with pytest.raises(SnapshotMismatch, match=r"rows\.arrow"):
        buffer.load(tmp_path / "nowhere")
    for name in ("rows.arrow", "open_streams.arrow"):
        shutil.copytree(tmp_path / "good", tmp_path / name)
        damaged = tmp_path / name / name
        damaged.write_bytes(damaged.read_bytes()[:200])
        with pytest.raises(SnapshotMismatch, match=name):
            buffer.load(tmp_path / name)
        assert buffer.num_rows == 0
    buffer.load(tmp_path / "good")
    assert buffer.num_drawable == 9
