"""The compiled draws and the visit distribution, against known moments and figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from tests.search.helpers import generators, golden
from zero_tune.search.draws import log_gamma_deviate, normal_pair, uniform
from zero_tune.search.readout import visit_distribution


@njit
def _uniforms(rng: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = uniform(rng, 0)


@njit
def _normals(rng: Any, out: Any) -> None:
    for i in range(0, len(out), 2):
        out[i], out[i + 1] = normal_pair(rng, 0)


@njit
def _gammas(rng: Any, shape: float, out: Any) -> None:
    for i in range(len(out)):
        out[i] = np.exp(log_gamma_deviate(rng, 0, shape))


@njit
def _distribution(visits: Any, temperature: float, out: Any) -> float:
    return visit_distribution(visits, temperature, out)


def test_uniforms() -> None:
    rng, out = generators(1), np.empty(100_000)
    _uniforms(rng, out)
    assert 0.0 < out.min() and out.max() < 1.0
    counts = np.histogram(out, bins=20, range=(0, 1))[0]
    assert np.sum((counts - 5000) ** 2 / 5000) < 45  # chi-square, 19 degrees of freedom
    assert abs(np.corrcoef(out[:-1], out[1:])[0, 1]) < 0.01


def test_normals() -> None:
    rng, out = generators(1, seed=2), np.empty(200_000)
    _normals(rng, out)
    assert out.mean() == pytest.approx(0.0, abs=0.01)
    assert out.var() == pytest.approx(1.0, abs=0.015)
    assert np.mean(out**4) == pytest.approx(3.0, abs=0.1)
    assert abs(np.corrcoef(out[::2], out[1::2])[0, 1]) < 0.01


@pytest.mark.parametrize("shape", [0.05, 0.3, 1.0, 4.0])
def test_gammas(shape: float) -> None:
    rng, out = generators(1, seed=3), np.empty(200_000)
    _gammas(rng, shape, out)
    assert out.mean() == pytest.approx(shape, rel=0.05)
    assert out.var() == pytest.approx(shape, rel=0.1)


@pytest.mark.parametrize("case", golden("action_distribution"))
def test_visit_distribution_equals_lightzero(case: dict[str, Any]) -> None:
    visits = np.asarray(case["visits"], np.int32)
    out = np.empty(len(visits))
    entropy = _distribution(visits, float(case["temperature"]), out)
    np.testing.assert_allclose(out, case["probs"], atol=1e-7)
    assert entropy == pytest.approx(case["entropy_base2"], abs=1e-6)
    assert out.argmax() == case["argmax"]


def test_visit_distribution_at_extreme_temperatures() -> None:
    visits, out = np.array([40, 50, 0, 10], np.int32), np.empty(4)
    _distribution(visits, 1e-3, out)
    np.testing.assert_allclose(out, [0, 1, 0, 0], atol=1e-12)
    _distribution(visits, 1e9, out)
    np.testing.assert_allclose(out, [1 / 3, 1 / 3, 0, 1 / 3], atol=1e-6)
