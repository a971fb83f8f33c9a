from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay.segments import NUM_SLOTS, VECTOR, make_segment, random_segments
from zero_tune.errors import NonFiniteError
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.replay.sum_tree import importance_weights
from zero_tune.types import ActionSpec, EnvSpec, Segment

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "per_lightzero.json").read_text())


def make_buffer(capacity: int = 60, unroll: int = 1, td: int = 1, **settings: Any) -> ReplayBuffer:
    return ReplayBuffer(
        VECTOR,
        capacity=capacity,
        num_slots=NUM_SLOTS,
        num_unroll_steps=unroll,
        td_steps=td,
        **settings,
    )


def golden_buffer(end: str | None) -> tuple[ReplayBuffer, np.ndarray]:
    """Three streams with segments of 6, 6 and 3 steps, and the rows of the 15 transitions in order."""
    buffer = make_buffer()
    for stream, length in enumerate((6, 6, 3)):
        buffer.append(make_segment(stream, length=length, end=end))
    status = buffer.window(np.arange(buffer.capacity)).weights[:, 0].any(axis=1)
    return buffer, np.flatnonzero(status)


def test_probabilities_equal_lightzeros() -> None:
    per = GOLDEN["per"]
    buffer, rows = golden_buffer("terminated")
    buffer.update_priority(rows, buffer.generation_of(rows), np.array(per["priorities"]))
    np.testing.assert_allclose(buffer.probability(rows), per["probs"], rtol=1e-12)
    for draw in per["draws"]:
        chosen = buffer.probability(rows[draw["index"]])
        weights = importance_weights(chosen, 15, per["beta"])
        np.testing.assert_allclose(weights, draw["is_weights"], rtol=1e-6)


def test_rows_without_a_window_have_probability_zero_where_lightzero_leaves_a_trace() -> None:
    """The same rows, but LightZero still gives them 1e-6 each, and a huge importance weight."""
    per = GOLDEN["per"]
    expected = np.array(per["priorities_when_not_done_and_unroll_plus_td_2"])
    buffer, rows = golden_buffer(None)
    applied = buffer.update_priority(rows, buffer.generation_of(rows), np.array(per["priorities"]))
    probability = buffer.probability(rows)
    np.testing.assert_array_equal(probability > 0, expected > 0)
    np.testing.assert_array_equal(probability[expected == 0], 0.0)
    kept = expected[expected > 0] ** per["alpha"] + 1e-6
    np.testing.assert_allclose(probability[expected > 0], kept / kept.sum(), rtol=1e-12)
    assert applied == (expected > 0).sum()


def test_update_changes_exactly_the_sampled_rows_like_lightzero() -> None:
    per = GOLDEN["per"]
    buffer, rows = golden_buffer("terminated")
    generation = buffer.generation_of(rows)
    buffer.update_priority(rows, generation, np.array(per["priorities"]))
    chosen = rows[[0, 3]]
    buffer.update_priority(chosen, buffer.generation_of(chosen), np.array([9.0, 8.0]))
    expected = np.array(per["after_update_0_3"])
    weights = expected ** per["alpha"] + 1e-6
    np.testing.assert_allclose(buffer.probability(rows), weights / weights.sum(), rtol=1e-12)
    assert buffer.stats()["max_priority"] == 9.0


def test_lightzeros_look_up_and_batch_from_our_windows() -> None:
    """Every position LightZero samples is a start here, with the same observations and targets."""
    env = EnvSpec("golden", (1,), "float32", ActionSpec("discrete", 3))
    for number, episode in enumerate(GOLDEN["episodes"]):
        buffer = ReplayBuffer(env, capacity=40, num_slots=3, num_unroll_steps=3, td_steps=3)
        for segment in golden_segments(episode):
            buffer.append(segment)
        rows = np.flatnonzero(buffer.probability(np.arange(40)))
        batch = episode["batch"]
        assert len(rows) == len(episode["look_up"]) == episode["episode_length"]
        window = buffer.window(rows)
        seen = buffer.observations(window.rows[:, :4])[..., 0]
        np.testing.assert_array_equal(seen, batch["obs"], err_msg=str(number))
        np.testing.assert_allclose(window.reward[:, :3], np.array(batch["target_reward"])[:, :3])
        np.testing.assert_allclose(window.weights[:, :4], batch["target_policy"], rtol=1e-6)
        real = np.arange(3) < window.num_real[:, None]
        given = np.array(batch["action"])
        np.testing.assert_array_equal(window.action[:, :3, 0][real], given[real])


def golden_segments(episode: dict[str, Any]) -> list[Segment]:
    """LightZero pads a segment with its successor's steps; only its own first 6 are new."""
    out, start, total = [], 0, episode["episode_length"]
    for stored in episode["segments"]:
        length = min(6, total - start)
        out.append(
            Segment(
                obs=np.array(stored["obs"][: length + 1], np.float32)[:, None],
                action=np.array(stored["action"][:length], np.int32)[:, None],
                reward=np.array(stored["reward"][:length], np.float32),
                root_value=np.array(stored["root_value"][:length], np.float32),
                pred_value=np.zeros(length, np.float32),
                weights=np.array(stored["child_visits"][:length], np.float32),
                candidates=None,
                legal=np.ones((length + 1, 3), np.bool_),
                chance=None,
                to_play=np.full(length + 1, -1, np.int8),
                timestep=np.arange(start, start + length, dtype=np.int32),
                stream_id=0,
                episode_id=0,
                terminated=start + length == total,
                truncated=False,
                policy_version=0,
            )
        )
        start += length
    return out


@pytest.mark.parametrize("stratified", [True, False])
def test_draws_follow_the_priorities_and_never_hit_other_rows(stratified: bool) -> None:
    rng = np.random.default_rng(3)
    buffer = make_buffer(capacity=40)
    for segment in random_segments(rng, steps=200, longest_episode=9):
        buffer.append(segment)
    rows = np.arange(40)
    buffer.update_priority(rows, buffer.generation_of(rows), rng.exponential(size=40))
    probability = buffer.probability(rows)
    assert 0 < np.count_nonzero(probability) == buffer.num_drawable < 40
    batches = [buffer.sample(50, rng, stratified=stratified) for _ in range(400)]
    counts = np.bincount(np.concatenate([b.row for b in batches]), minlength=40)
    spread = 4.5 * np.sqrt(20_000 * probability * (1 - probability))
    assert (np.abs(counts - 20_000 * probability) <= spread).all()
    for batch in batches[:5]:
        assert batch.weight.max() == 1.0 and batch.weight.min() > 0
        ideal = (buffer.num_drawable * probability[batch.row]) ** -0.4
        np.testing.assert_allclose(batch.weight, ideal / ideal.max(), rtol=1e-6)


def test_without_priority_draws_are_uniform_and_weights_are_one() -> None:
    rng = np.random.default_rng(0)
    buffer = make_buffer(use_priority=False)
    buffer.append(make_segment(length=20))
    rows = np.arange(18)
    buffer.update_priority(rows, buffer.generation_of(rows), rng.random(18))
    np.testing.assert_array_equal(buffer.probability(np.arange(60)), [1 / 18] * 18 + [0] * 42)
    np.testing.assert_array_equal(buffer.sample(64, rng).weight, np.ones(64, np.float32))


def test_equal_priorities_give_weights_of_one() -> None:
    buffer = make_buffer()
    buffer.append(make_segment(length=20))
    weight = buffer.sample(64, np.random.default_rng(0)).weight
    np.testing.assert_array_equal(weight, np.ones(64, np.float32))


def test_new_rows_get_the_value_gap_or_the_largest_live_priority() -> None:
    segment = make_segment(length=4, end="terminated")
    gap, largest = make_buffer(max_priority_for_new=False, alpha=1.0), make_buffer(alpha=1.0)
    for buffer in (gap, largest):
        buffer.append(segment)
    rows = np.arange(4)
    expected = np.abs(segment.root_value - segment.pred_value) + 2e-6
    np.testing.assert_allclose(gap.probability(rows), expected / expected.sum(), rtol=1e-6)
    assert largest.stats()["max_priority"] == 1.0
    largest.update_priority(rows, largest.generation_of(rows), np.array([0.1, 3.0, 0.2, 0.1]))
    largest.append(make_segment(episode=1, length=2, end="terminated"))
    ratio = largest.probability(np.array([5, 6])) / largest.probability(np.array([1]))
    np.testing.assert_array_equal(ratio, [1.0, 1.0])
    largest.update_priority(np.array([1, 5, 6]), np.ones(3, np.int64), np.full(3, 0.5))
    assert largest.stats()["max_priority"] == 0.5


def test_a_write_back_for_overwritten_rows_changes_nothing_and_is_counted() -> None:
    buffer = make_buffer(capacity=20)
    buffer.append(make_segment(length=12, end="terminated"))
    rng = np.random.default_rng(0)
    old = buffer.sample(32, rng)
    assert buffer.update_priority(old.row, old.generation, rng.random(32)) == 32
    buffer.append(make_segment(stream=1, length=14, end="terminated"))  # rows 0..7 are new now
    before = buffer.probability(np.arange(20))
    stale = np.isin(old.row, np.arange(8))
    assert stale.any() and not stale.all()
    assert (
        buffer.update_priority(old.row[stale], old.generation[stale], np.full(stale.sum(), 9.0))
        == 0
    )
    np.testing.assert_array_equal(buffer.probability(np.arange(20)), before)
    assert buffer.dropped_priorities_total == stale.sum()
    applied = buffer.update_priority(old.row, old.generation, np.full(32, 9.0))
    assert applied == 32 - stale.sum() and buffer.dropped_priorities_total == 2 * stale.sum()
    buffer.clear()
    assert buffer.update_priority(old.row, old.generation, np.ones(32)) == 0
    assert buffer.num_drawable == 0 and not buffer.probability(np.arange(20)).any()


def test_a_row_that_lost_its_past_cannot_be_revived_by_a_write_back() -> None:
    buffer = make_buffer(capacity=20, frame_stack=3)
    buffer.append(make_segment(length=10, end="terminated"))
    rows = np.arange(10)
    generation = buffer.generation_of(rows)
    buffer.append(make_segment(stream=1, length=12, end="terminated"))  # overwrites rows 0..3
    assert buffer.update_priority(rows, generation, np.ones(10)) == 4  # 4 and 5 lack frames
    np.testing.assert_array_equal(buffer.probability(np.arange(4, 10)) > 0, [0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_bad_priority_is_refused_by_name(bad: float) -> None:
    buffer = make_buffer()
    buffer.append(make_segment(length=8))
    with pytest.raises(NonFiniteError, match="priority"):
        buffer.update_priority(np.array([0]), np.array([1]), np.array([bad]))


def test_sampling_waits_for_a_batch_or_a_full_ring() -> None:
    """A batch of the whole capacity must not wait for ever for rows that tails and open ends take."""
    buffer = make_buffer(capacity=20)
    with pytest.raises(ValueError, match="no drawable row"):
        buffer.sample(4, np.random.default_rng(0))
    buffer.append(make_segment(length=10))
    assert buffer.can_sample(8) and not buffer.can_sample(9)
    buffer.append(make_segment(start=10, length=10))
    assert buffer.num_drawable == 18 and buffer.can_sample(20)


def test_reanalysed_policies_reach_only_rows_that_are_still_there() -> None:
    buffer = ReplayBuffer(
        VECTOR, capacity=12, num_slots=3, candidate_dim=1, num_unroll_steps=1, td_steps=1
    )
    buffer.append(make_segment(length=5, end="terminated", candidate_dim=1))
    rows = np.array([0, 1, 4, 5])  # row 5 is the tail
    generation = buffer.generation_of(rows)
    buffer.append(make_segment(episode=1, length=6, end="terminated", candidate_dim=1))
    before = buffer.window(np.arange(12))  # rows 6..11, and row 0 for the second tail
    weights = np.tile(np.array([0.0, 0.25, 0.75], np.float32), (4, 1))
    candidates = np.full((4, 3, 1), 2, np.int32)
    assert buffer.update_policy(rows, generation, weights, candidates, np.full(4, 5.0)) == 2
    after = buffer.window(np.arange(12))
    new = np.isin(np.arange(12), [1, 4])
    np.testing.assert_array_equal(after.weights[new, 0], weights[:2])
    np.testing.assert_array_equal(after.candidates[new, 0], candidates[:2])
    np.testing.assert_array_equal(after.root_value[new, 0], [5.0, 5.0])
    for name in ("weights", "candidates", "root_value"):
        np.testing.assert_array_equal(getattr(after, name)[~new, 0], getattr(before, name)[~new, 0])
    assert buffer.times_reanalyzed(np.arange(6)).tolist() == [0, 1, 0, 0, 1, 0]
    assert buffer.dropped_policies_total == 2
    assert buffer.stats()["reanalyzed_share"] == 2 / 10
    with pytest.raises(NonFiniteError, match="root_value"):
        buffer.update_policy(rows, generation, weights, candidates, np.full(4, np.nan))
    with pytest.raises(ValueError, match="candidates"):
        buffer.update_policy(rows, generation, weights, None, np.full(4, 1.0))
