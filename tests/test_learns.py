"""Agents learn: the first rung of each policy type's ladder. Minutes each; see ``benchmarks/learning.py``."""

import pytest

from benchmarks.learning import LADDER, run

pytestmark = [pytest.mark.learning, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("name", list(LADDER))
def test_two_of_three_seeds_do_what_is_claimed(name):
    rung, passed = LADDER[name], 0
    for seed in (0, 1, 2):
        passed += rung.passed(run(rung, seed)["score"])
        if passed == 2:
            return
    raise AssertionError(f"{name}: {passed} of 3 seeds passed")
