"""Random episodes, segment lengths, streams, capacities and stacks against the list-of-episodes replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.reference.replay_reference import Key, ReplayReference
from tests.replay.segments import (
    CONTINUOUS,
    IMAGE,
    NUM_SLOTS,
    VECTOR,
    key_of,
    make_segment,
    random_segments,
)
from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import EnvSpec

TABLE = [
    # env, capacity, frame_stack, history, unroll, td, candidate_dim
    pytest.param(VECTOR, 4000, 1, 1, 5, 5, 0, id="nothing-evicted"),
    pytest.param(VECTOR, 150, 1, 1, 5, 5, 0, id="small-ring"),
    pytest.param(VECTOR, 97, 4, 1, 3, 2, 0, id="frame-stack"),
    pytest.param(VECTOR, 97, 1, 5, 3, 2, 1, id="history-sampled-actions"),
    pytest.param(VECTOR, 40, 3, 4, 2, 1, 0, id="stack-and-history-tiny-ring"),
    pytest.param(VECTOR, 21, 2, 2, 5, 5, 0, id="ring-of-two-windows"),
    pytest.param(IMAGE, 130, 4, 1, 5, 5, 0, id="image-stack"),
    pytest.param(IMAGE, 60, 2, 3, 1, 1, 0, id="image-history"),
    pytest.param(CONTINUOUS, 80, 2, 2, 3, 3, 2, id="continuous"),
]


class Pair:
    """A buffer and the reference, fed alike."""

    def __init__(
        self, env: EnvSpec, capacity: int, stack: int, history: int, unroll: int, td: int, dim: int
    ) -> None:
        self.buffer = ReplayBuffer(
            env,
            capacity=capacity,
            num_slots=NUM_SLOTS,
            candidate_dim=dim,
            frame_stack=stack,
            history_length=history,
            num_unroll_steps=unroll,
            td_steps=td,
        )
        self.reference = ReplayReference(capacity, stack, history, unroll + td + 1)

    def append(self, segment: Any) -> None:
        assert self.buffer.append(segment) == len(segment)
        self.reference.append(segment)

    def close(self, stream: int) -> None:
        self.buffer.close_stream(stream)
        self.reference.close_stream(stream)

    def keys(self, rows: np.ndarray) -> list[Key]:
        newest = self.buffer.observations(rows)
        frame = newest[..., -newest.shape[1] // self.buffer.frame_stack :]
        if newest.ndim > 2:
            frame = newest[:, -newest.shape[1] // self.buffer.frame_stack :]
        return [key_of(f) for f in frame]

    def drawable_rows(self) -> np.ndarray:
        return np.flatnonzero(self.buffer.probability(np.arange(self.buffer.capacity)))

    def compare_drawable(self) -> np.ndarray:
        rows = self.drawable_rows()
        found = self.keys(rows) if len(rows) else []
        assert len(set(found)) == len(found) == self.buffer.num_drawable
        assert set(found) == self.reference.drawable()
        return rows

    def compare_contents(self, rows: np.ndarray) -> None:
        window, buffer = self.buffer.window(rows), self.buffer
        history = buffer.history(rows)
        later = buffer.observations(window.rows)
        np.testing.assert_array_equal(window.generation, buffer.generation_of(rows))
        for i, key in enumerate(self.keys(rows)):
            expected = self.reference.window(key)
            for name in ("num_real", "terminated", "truncated", "policy_version"):
                assert getattr(window, name)[i] == expected[name], (key, name)
            for name in (
                "timestep legal to_play action reward chance weights root_value candidates"
            ).split():
                actual = getattr(window, name)
                assert (actual is None) == (expected[name] is None), name
                if actual is not None:
                    np.testing.assert_array_equal(
                        actual[i], expected[name], err_msg=f"{key} {name}"
                    )
            for w, state in enumerate(expected["keys"]):
                np.testing.assert_array_equal(later[i, w], self.reference.observation(state))
            self._compare_history(history, i, key)

    def _compare_history(self, history: Any, i: int, key: Key) -> None:
        expected = self.reference.history(key)
        length = expected["length"]
        assert (history.length[i], history.timestep[i]) == (length, expected["timestep"])
        np.testing.assert_array_equal(history.obs[i, -length:], expected["obs"])
        actions = history.action[i]
        if length > 1:
            np.testing.assert_array_equal(actions[-length:-1], expected["action"])
        assert not actions[:-length].any() and not actions[-1].any()


@pytest.mark.parametrize("setting", [p.values for p in TABLE], ids=[p.id for p in TABLE])
@pytest.mark.parametrize("seed", [0, 1])
def test_drawable_rows_and_their_windows(setting: tuple[Any, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = Pair(*setting)
    segments = random_segments(
        rng,
        env=setting[0],
        candidate_dim=setting[-1],
        streams=int(rng.integers(1, 5)),
        steps=300,
        longest_segment=10,
    )
    for number, segment in enumerate(segments):
        pair.append(segment)
        rows = pair.compare_drawable()
        if number % 12 == 0 and len(rows):
            pair.compare_contents(rows[:: max(1, len(rows) // 20)])
    for stream in range(5):
        pair.close(stream)
        pair.compare_drawable()
    pair.compare_contents(pair.drawable_rows())


@pytest.mark.parametrize("longest", [3, 10, 25])
def test_every_step_of_every_closed_episode_is_a_start_exactly_once(longest: int) -> None:
    """Whatever the episode lengths, cutting into segments loses and repeats nothing."""
    rng = np.random.default_rng(longest)
    pair = Pair(VECTOR, 5000, 1, 1, 5, 5, 0)
    segments = random_segments(rng, steps=2000, longest_episode=longest)
    for segment in segments:
        pair.append(segment)
    for stream in range(3):
        pair.close(stream)
    steps = Counter((s.stream_id, s.episode_id, int(t)) for s in segments for t in s.timestep)
    assert set(steps.values()) == {1}
    assert Counter(pair.keys(pair.drawable_rows())) == steps
    assert pair.buffer.rows_appended_total == pair.buffer.num_rows == sum(map(len, segments))


def test_windows_do_not_depend_on_where_segments_were_cut() -> None:
    cut, whole = Pair(VECTOR, 300, 2, 3, 5, 5, 0), Pair(VECTOR, 300, 2, 3, 5, 5, 0)
    whole.append(make_segment(length=100, end="truncated", version=7))
    for start in range(0, 100, 20):
        end = "truncated" if start == 80 else None
        cut.append(make_segment(start=start, length=20, end=end, version=7))
    rows = [p.drawable_rows() for p in (cut, whole)]
    assert [p.keys(r) for p, r in zip((cut, whole), rows, strict=True)] == [
        [(0, 0, t) for t in range(100)]
    ] * 2
    a, b = (p.buffer.window(r) for p, r in zip((cut, whole), rows, strict=True))
    for name in "num_real terminated truncated action reward weights root_value timestep".split():
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_an_open_episode_waits_for_its_successor() -> None:
    """T + td = 4 later states must be stored; the observation after a segment is not one of them yet."""
    pair = Pair(VECTOR, 100, 1, 1, 2, 2, 0)
    pair.append(make_segment(length=6))
    assert sorted(pair.compare_drawable()) == [0, 1]
    pair.append(make_segment(stream=1, length=3, end="terminated"))
    pair.append(make_segment(start=6, length=2))
    assert [k for k in pair.keys(pair.compare_drawable()) if k[0] == 0] == [
        (0, 0, t) for t in range(4)
    ]
    assert pair.buffer.stats()["num_open_streams"] == 1
    assert pair.buffer.close_stream(0) and not pair.buffer.close_stream(0)
    pair.reference.close_stream(0)
    rows = pair.compare_drawable()
    pair.compare_contents(rows)
    last = pair.buffer.window(rows[-1:])
    assert last.truncated[0] and not last.terminated[0]


def test_the_final_observation_has_a_row_but_is_never_a_start() -> None:
    pair = Pair(VECTOR, 100, 3, 2, 2, 2, 0)
    pair.append(make_segment(length=3, end="terminated"))
    assert pair.buffer.num_rows == pair.buffer.num_drawable == 3
    tail = pair.buffer.window(np.array([2])).rows[0, 1]
    assert pair.buffer.probability(np.array([tail]))[0] == 0.0
    np.testing.assert_array_equal(
        pair.buffer.observations(np.array([tail]))[0], pair.reference.observation((0, 0, 3))
    )
    pair._compare_history(pair.buffer.history(np.array([tail])), 0, (0, 0, 3))
    legal, to_play = pair.buffer.state_fields(np.array([tail]))
    np.testing.assert_array_equal(legal[0], pair.reference.episodes[0, 0].states[3]["legal"])
    assert to_play[0] == pair.reference.episodes[0, 0].states[3]["to_play"]


def test_both_end_flags_mean_a_true_end() -> None:
    pair = Pair(VECTOR, 100, 1, 1, 2, 2, 0)
    segment = make_segment(length=3, end="terminated")
    segment.truncated = True
    pair.append(segment)
    window = pair.buffer.window(np.array([0]))
    assert window.terminated[0] and not window.truncated[0]


def test_a_segment_that_does_not_continue_its_stream_cuts_the_old_episode() -> None:
    pair = Pair(VECTOR, 100, 1, 1, 2, 2, 0)
    pair.append(make_segment(length=4))
    pair.buffer.append(make_segment(episode=1, length=4))
    pair.reference.close_stream(0)
    pair.reference.append(make_segment(episode=1, length=4))
    pair.compare_contents(pair.compare_drawable())
    assert pair.buffer.stats()["broken_chains_total"] == 1


def test_a_lost_segment_does_not_join_its_neighbours() -> None:
    """Steps 4 and 5 never came: step 3 is followed by nothing, and step 6 lacks its earlier frames."""
    buffer = ReplayBuffer(
        VECTOR, capacity=50, num_slots=3, frame_stack=3, num_unroll_steps=2, td_steps=2
    )
    buffer.append(make_segment(length=4))
    buffer.append(make_segment(start=6, length=4, end="terminated"))
    rows = np.flatnonzero(buffer.probability(np.arange(50)))
    window = buffer.window(rows)
    assert window.timestep[:, 0].tolist() == [0, 1, 2, 3, 8, 9]
    assert window.num_real.tolist() == [4, 3, 2, 1, 2, 1]
    assert window.truncated.tolist() == [True] * 4 + [False] * 2
    assert buffer.broken_chains_total == 1


def test_closing_a_stream_whose_last_row_is_next_to_go_writes_nothing() -> None:
    pair = Pair(VECTOR, 12, 1, 1, 2, 2, 0)
    pair.append(make_segment(length=1))
    pair.append(make_segment(stream=1, length=11))
    before = pair.buffer.stats()
    pair.close(0)
    pair.compare_contents(pair.compare_drawable())
    assert pair.buffer.stats() == before | {"num_open_streams": 1.0}


def test_a_cleared_buffer_starts_afresh() -> None:
    pair = Pair(VECTOR, 30, 3, 2, 2, 2, 0)
    pair.append(make_segment(length=25))
    pair.buffer.clear()
    assert pair.buffer.num_rows == pair.buffer.stats()["num_open_streams"] == 0
    assert not pair.buffer.can_sample(1)
    fresh = Pair(VECTOR, 30, 3, 2, 2, 2, 0)
    pair.reference = fresh.reference
    for episode in range(4):
        pair.append(make_segment(1, episode, length=9, end="terminated"))
        pair.compare_contents(pair.compare_drawable())
    assert pair.buffer.rows_appended_total == 25 + 36


def test_steps_whose_past_never_arrived_are_not_starts() -> None:
    """Resumed in mid-episode: with 3 frames, steps 10 and 11 lack a frame, step 12 does not."""
    buffer = ReplayBuffer(
        VECTOR, capacity=50, num_slots=3, frame_stack=3, num_unroll_steps=2, td_steps=2
    )
    buffer.append(make_segment(start=10, length=5, end="terminated"))
    rows = np.flatnonzero(buffer.probability(np.arange(50)))
    assert buffer.window(rows).timestep[:, 0].tolist() == [12, 13, 14]
    assert buffer.num_rows == 5


def test_an_open_chain_is_blank_past_its_last_row() -> None:
    """Such a row is never drawn, but reading it must not repeat the last transition."""
    buffer = ReplayBuffer(VECTOR, capacity=50, num_slots=3, num_unroll_steps=2, td_steps=2)
    segment = make_segment(length=3)
    buffer.append(segment)
    window = buffer.window(np.array([1]))
    assert window.num_real[0] == 1 and not window.terminated[0] and not window.truncated[0]
    np.testing.assert_array_equal(window.reward[0], [segment.reward[1], 0, 0, 0])
    np.testing.assert_array_equal(window.weights[0, :2], segment.weights[1:])
    assert not window.weights[0, 2:].any() and not window.action[0, 1:].any()
    assert (window.chance[0, 1:] == -1).all()


def test_a_segment_as_large_as_the_ring_replaces_everything() -> None:
    pair = Pair(VECTOR, 20, 2, 1, 3, 2, 0)
    pair.append(make_segment(length=12))
    pair.append(make_segment(stream=1, length=19, end="terminated"))
    rows = pair.compare_drawable()
    assert len(rows) == 19 and pair.buffer.stats()["fill"] == 1.0
    pair.append(make_segment(start=12, length=8))
    pair.compare_contents(pair.compare_drawable())


def test_counts_of_segments_and_episodes_follow_the_ring() -> None:
    buffer = ReplayBuffer(VECTOR, capacity=12, num_slots=3, num_unroll_steps=1, td_steps=1)
    for episode in range(3):
        buffer.append(make_segment(episode=episode, length=3, end="terminated"))
    stats = buffer.stats()
    assert (stats["num_segments"], stats["num_episodes"], stats["num_rows"]) == (3, 3, 9)
    buffer.append(make_segment(episode=3, length=2))  # overwrites two of the first segment's rows
    stats = buffer.stats()
    assert (stats["num_segments"], stats["num_episodes"], stats["num_rows"]) == (3, 3, 9)
    assert stats["rows_appended_total"] == 11 and stats["segments_appended_total"] == 4


def test_oldest_rows_are_ordered_by_age() -> None:
    buffer = ReplayBuffer(VECTOR, capacity=16, num_slots=3, num_unroll_steps=1, td_steps=1)
    for episode in range(7):
        buffer.append(make_segment(episode=episode, length=3, end="terminated"))
    rows = buffer.oldest_rows(0.5)
    assert buffer.observations(rows)[:, 1:3].astype(int).tolist() == [
        [3, 0], [3, 1], [3, 2], [4, 0], [4, 1], [4, 2]
    ]  # fmt: skip
    assert (np.diff(buffer.age(rows)) < 0).all()
    assert len(buffer.oldest_rows(1.0)) == buffer.num_drawable
