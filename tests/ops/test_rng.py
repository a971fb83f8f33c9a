"""Row generator states: reproducible, distinct, independent of who else is in the batch."""

from __future__ import annotations

import itertools

import numpy as np

from zero_tune.ops.rng import mix64, row_generators


def test_mix_is_splitmix64() -> None:
    """First outputs of the published generator for seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    with np.errstate(over="ignore"):
        states = np.uint64(1234567) + np.arange(1, 4, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
    assert mix64(states).tolist() == expected


def test_a_row_depends_on_its_own_names_only() -> None:
    streams, steps = np.array([5, 7, 9]), np.array([1, 1, 2])
    together = row_generators(3, streams, steps)
    assert together.dtype == np.uint64 and together.shape == (3,)
    for b in range(3):
        assert row_generators(3, streams[b : b + 1], steps[b : b + 1])[0] == together[b]


def test_names_do_not_collide() -> None:
    names = list(itertools.product(range(8), range(12), range(12)))
    states = {int(row_generators(s, np.array([a]), np.array([b]))[0]) for s, a, b in names}
    assert len(states) == len(names)


def test_any_integers_name_a_state() -> None:
    for seed in (0, -1, 2**31, 2**64 - 1, 2**80):
        assert row_generators(seed, np.array([-1, 2**62]), np.array([0, -5])).shape == (2,)
    a = row_generators(1, np.array([0], np.int32), np.array([4], np.int8))
    np.testing.assert_array_equal(a, row_generators(1, np.array([0]), np.array([4])))


def test_bits_are_balanced() -> None:
    states = row_generators(0, np.arange(4000), np.zeros(4000, np.int64))
    bits = np.unpackbits(states.view(np.uint8)).reshape(4000, 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 0.04
