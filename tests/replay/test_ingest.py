"""What the buffer refuses, and that it keeps nothing of the caller's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.replay.segments import CONTINUOUS, IMAGE, NUM_SLOTS, VECTOR, make_segment
from zero_tune.errors import ConfigError, NonFiniteError
from zero_tune.replay.buffer import ReplayBuffer


def make_buffer(**settings: Any) -> ReplayBuffer:
    defaults = {"capacity": 40, "num_slots": NUM_SLOTS, "num_unroll_steps": 1, "td_steps": 1}
    return ReplayBuffer(settings.pop("env", VECTOR), **{**defaults, **settings})


ARRAYS = "obs action reward root_value pred_value weights candidates legal chance to_play timestep"


def test_read_only_arrays_are_copied_and_can_be_reanalysed() -> None:
    """Arrays that come out of Ray's object store cannot be written to."""
    buffer = make_buffer(candidate_dim=1)
    segment = make_segment(length=6, candidate_dim=1)
    kept = make_segment(length=6, candidate_dim=1)
    for name in ARRAYS.split():
        getattr(segment, name).flags.writeable = False
    buffer.append(segment)
    for name in ARRAYS.split():
        array = getattr(segment, name)
        array.flags.writeable = True
        array[...] = 0
    buffer.close_stream(0)
    window = buffer.window(np.arange(6))
    np.testing.assert_array_equal(window.weights[:, 0], kept.weights)
    np.testing.assert_array_equal(window.reward[:, 0], kept.reward)
    np.testing.assert_array_equal(buffer.observations(np.arange(7)), kept.obs)
    new = np.full((6, NUM_SLOTS), 1 / NUM_SLOTS, np.float32)
    rows = np.arange(6)
    args = (rows, buffer.generation_of(rows), new, np.ones((6, NUM_SLOTS, 1), np.int32), np.ones(6))
    assert buffer.update_policy(*args) == 6
    np.testing.assert_array_equal(buffer.window(rows).weights[:, 0], new)


@pytest.mark.parametrize(
    ("field", "quantity"),
    [
        ("reward", "reward"),
        ("obs", "observation"),
        ("root_value", "root_value"),
        ("pred_value", "pred_value"),
        ("weights", "policy weights"),
    ],
)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_non_finite_numbers_are_refused_by_name_and_place(
    field: str, quantity: str, bad: float
) -> None:
    buffer = make_buffer()
    segment = make_segment(stream=4, episode=2, start=10, length=6)
    getattr(segment, field)[3] = bad
    with pytest.raises(NonFiniteError, match="stream 4, episode 2, step 13") as caught:
        buffer.append(segment)
    assert caught.value.quantity == quantity
    assert buffer.num_rows == buffer.rows_appended_total == 0


def test_a_non_finite_continuous_action_is_refused() -> None:
    buffer = make_buffer(env=CONTINUOUS, candidate_dim=2)
    segment = make_segment(length=4, env=CONTINUOUS, candidate_dim=2)
    segment.action[0, 1] = np.nan
    with pytest.raises(NonFiniteError, match="action"):
        buffer.append(segment)


@pytest.mark.parametrize("field", ARRAYS.split())
def test_a_wrong_shape_is_refused_by_field(field: str) -> None:
    buffer = make_buffer(candidate_dim=1)
    segment = make_segment(length=6, candidate_dim=1)
    setattr(segment, field, getattr(segment, field)[:-1])
    with pytest.raises(ValueError, match=rf"segment\.{field}|must have shape"):
        buffer.append(segment)


def test_missing_arrays_wrong_dtypes_and_gaps_are_refused() -> None:
    segment = make_segment(length=4)
    segment.chance = None
    with pytest.raises(ValueError, match=r"segment\.chance"):
        make_buffer().append(segment)
    with pytest.raises(ValueError, match=r"segment\.candidates"):
        make_buffer(candidate_dim=1).append(make_segment(length=4))
    image = make_segment(length=4, env=IMAGE)
    image.obs = image.obs.astype(np.float32) / 255
    with pytest.raises(ValueError, match="must be uint8"):
        make_buffer(env=IMAGE).append(image)
    gap = make_segment(length=4)
    gap.timestep[2:] += 1
    with pytest.raises(ValueError, match="count up by one"):
        make_buffer().append(gap)
    with pytest.raises(ValueError, match="at least one transition"):
        make_buffer().append(empty_segment())


def empty_segment() -> Any:
    segment = make_segment(length=1)
    for name in ARRAYS.split():
        value = getattr(segment, name)
        setattr(segment, name, None if value is None else value[:-1])
    return segment


def test_too_small_a_capacity_is_refused_with_the_number_that_would_do() -> None:
    with pytest.raises(ConfigError, match=r"replay_buffer_size.*Set it to 14 or more"):
        make_buffer(capacity=13, frame_stack=4, num_unroll_steps=5, td_steps=5)
    buffer = make_buffer(capacity=10)
    with pytest.raises(ConfigError, match=r"final observation, 11 rows; got 10"):
        buffer.append(make_segment(length=10, end="terminated"))
    assert buffer.append(make_segment(length=10)) == 10
