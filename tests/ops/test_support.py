"""Scalar transform and supports, against hand-computed and other projects' figures."""

import json
from pathlib import Path

import pytest
import torch

from zero_tune.ops.support import (
    Support,
    decode_pair,
    inverse_scalar_transform,
    scalar_transform,
    soft_cross_entropy,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "scalar_support.json").read_text())


def test_transform_and_inverse_equal_the_golden_figures():
    x, h = torch.tensor(GOLDEN["x"]), torch.tensor(GOLDEN["h"])
    assert torch.allclose(scalar_transform(x), h, rtol=1e-5, atol=1e-6)
    y, inverse = torch.tensor(GOLDEN["y"]), torch.tensor(GOLDEN["inverse_y"])
    assert torch.allclose(inverse_scalar_transform(y), inverse, rtol=1e-4, atol=5e-5)


def test_the_inverse_loses_no_digits():
    for x in (0.0, 1e-3, 1.0, 89.0, 1e4, 1e6):
        for sign in (1.0, -1.0):
            value = torch.tensor(sign * x)
            back = inverse_scalar_transform(scalar_transform(value))
            assert abs(float(back) - sign * x) <= 1e-4 * x


INTEGRAL = [c for c in GOLDEN["two_hot"] if float(c["step"]).is_integer()]  # ours are integral


@pytest.mark.parametrize("case", INTEGRAL, ids=lambda c: f"{c['size']}")
def test_two_hot_equals_the_golden_figures(case):
    support = Support(int(case["start"]), int(case["stop"]), int(case["step"]))
    assert support.size == case["size"]
    z = torch.tensor(case["z"], dtype=torch.float64)
    probs = support.encode(inverse_scalar_transform(z))
    for row, expected in zip(probs, case["nonzero"], strict=True):
        want = torch.zeros(support.size, dtype=torch.float64)
        for index, mass in expected:
            want[index] = mass
        assert torch.allclose(row, want, atol=1e-4)


@pytest.mark.parametrize("width, largest", [(300, 58706), (150, 17754), (50, 2364), (10, 117)])
def test_largest_representable_value(width, largest):
    assert round(Support(-width, width + 1).max_value) == largest


def test_edges_take_all_mass_and_are_counted_as_clipped():
    support = Support(-50, 51)
    probs = support.encode(torch.tensor([1e9, -1e9, 2000.0]))
    assert probs[0, -1] == 1.0 and probs[1, 0] == 1.0
    assert torch.allclose(probs.sum(-1), torch.ones(3))
    assert float(support.clipped_share(torch.tensor([1e6, 0.0]))) == 0.5


def test_decoding_inverts_encoding_between_the_edges():
    support = Support(-300, 301)
    x = torch.linspace(-2000, 2000, 401)
    back = support.decode(torch.log(support.encode(x) + 1e-30))
    assert torch.allclose(back, x, rtol=1e-3, atol=1e-3)


def test_the_expectation_is_taken_before_the_inverse():
    support = Support(0, 11)
    logits = torch.full((1, 11), -1e9)
    logits[0, 0] = logits[0, 10] = 0.0  # mean 5 in h-space
    expected = inverse_scalar_transform(torch.tensor(5.0))
    assert torch.isclose(support.decode(logits)[0], expected)


def test_decode_pair_equals_two_decodes():
    a, b = Support(-10, 11), Support(-50, 51)
    x, y = torch.randn(4, a.size), torch.randn(4, b.size)
    first, second = decode_pair(a, x, b, y)
    assert torch.allclose(first, a.decode(x)) and torch.allclose(second, b.decode(y))


def test_soft_cross_entropy_of_a_uniform_guess_is_log_size():
    target = Support(-10, 11).encode(torch.tensor([3.0]))
    loss = soft_cross_entropy(torch.zeros(1, 21), target)
    assert torch.allclose(loss, torch.log(torch.tensor(21.0)))
