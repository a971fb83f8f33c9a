"""The PUCT rule by hand-computed numbers and small worlds with known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.tree_search import Step
from tests.search.helpers import generators, make_search
from tests.search.scalar_world import ScalarWorld
from zero_tune.search.search import GivenDraws
from zero_tune.search.tree import exploration_table
from zero_tune.types import SearchResult


def search_one(
    world: ScalarWorld,
    root: Step,
    *,
    batch: int = 1,
    legal: Any = None,
    to_play: int = -1,
    seed: int = 0,
    explore: bool = False,
    given: GivenDraws | None = None,
    search: Any = None,
    **settings: Any,
) -> SearchResult:
    width = settings.pop("width", len(root.policy))
    run = search or make_search(width, **settings)
    mask = np.ones((batch, width), np.bool_)
    if legal is not None:
        mask[:] = False
        mask[:, legal] = True
    if settings.get("continuous"):
        mask = np.zeros((batch, 0), np.bool_)
    return run.run(
        world,
        world.roots([root] * batch),
        mask,
        np.full(batch, to_play, np.int8),
        generators(batch, seed),
        explore=explore,
        given=given,
    )


def constant(reward: float, value: float, width: int) -> ScalarWorld:
    return ScalarWorld(lambda state, action: Step(reward, value, [0.0] * width, None))


def test_exploration_term() -> None:
    """10 visits of the node, prior 0.2, 3 visits of the slot: 0.1977308."""
    table = exploration_table(10, 19652.0, 1.25)
    assert table[10] / np.sqrt(10) == pytest.approx(1.2505596, abs=1e-6)
    assert 0.2 * table[10] / (1 + 3) == pytest.approx(0.1977308, abs=1e-6)
    assert table[0] == 0


def test_three_simulations_by_hand() -> None:
    """Prior 3:1; slot 0 is worth 0, slot 1 worth 1, no rewards, discount 1, root value 0.

    1: no range yet, the larger prior wins: slot 0. Range is then [0, 0], which is none.
    2: scores 0.75 c sqrt(2) / 2 = 0.66 against 0.25 c sqrt(2) = 0.44: slot 0 again (its child).
    3: scores 0.75 c sqrt(3) / 3 = 0.54 against 0.25 c sqrt(3) = 0.54, equal but for rounding: slot 0's
       prior is a little smaller here, so slot 1.
    """
    logits = [float(np.log(0.7499)), float(np.log(0.2501))]

    def step(state: Any, action: int) -> Step:
        return Step(0.0, float(action), [0.0, 0.0], None)

    leaves = []
    for n in (1, 2, 3):
        search = make_search(2, num_simulations=n, discount_factor=1.0)
        result = search_one(ScalarWorld(step), Step(0, 0, logits, None), search=search)
        leaves.append(result.visit_counts[0].tolist())
    assert leaves == [[1, 0], [2, 0], [2, 1]]


def test_prior_decides_the_first_visit_unless_own_visits_do_not_count() -> None:
    root = Step(0, 0.3, [0.0, 0.1, 2.0, 0.0], None)
    for own, expected in ((True, 2), (False, 0)):
        search = make_search(4, num_simulations=1, count_own_visit=own)
        result = search_one(constant(0.0, 0.3, 4), root, search=search)
        assert result.visit_counts[0].argmax() == expected


def test_one_value_everywhere_is_no_range() -> None:
    """Without differences in value the prior decides, whatever the value's size."""
    root = Step(0, 7.0, [1.0, 0.0, -1.0], None)
    result = search_one(constant(0.0, 7.0, 3), root, num_simulations=100, discount_factor=1.0)
    prior = np.exp([1.0, 0.0, -1.0]) / np.exp([1.0, 0.0, -1.0]).sum()
    assert result.visit_counts[0] / 100 == pytest.approx(prior, abs=0.02)
    assert np.isfinite(result.value).all()


def test_root_value_counts_the_network_once() -> None:
    """Value 1 everywhere without rewards or discount is 1, not simulations / (simulations + 1)."""
    for rule in ("puct", "gumbel"):
        root = Step(0, 1.0, [0.0, 0.0], None)
        result = search_one(constant(0.0, 1.0, 2), root, rule=rule, discount_factor=1.0)
        assert result.value[0] == 1.0


def chain(state: Any, action: int) -> Step:
    """Two decisions, then nothing: 0 then 1 pays 2 at the end, 1 pays 1 at once."""
    if state == "start":
        return Step([0.0, 1.0][action], 0.0, [0.0, 0.0], ("middle", action))
    if state == ("middle", 0):
        return Step([0.0, 2.0][action], 0.0, [0.0, 0.0], "end")
    return Step(0.0, 0.0, [0.0, 0.0], "end")


@pytest.mark.parametrize(("rule", "sampled"), [("puct", 0), ("puct", 2), ("gumbel", 0)])
@pytest.mark.parametrize(("discount", "best", "worth"), [(0.9, 0, 1.8), (0.4, 1, 1.0)])
def test_known_chain(rule: str, sampled: int, discount: float, best: int, worth: float) -> None:
    result = search_one(
        ScalarWorld(chain),
        Step(0, 0.0, [0.0, 0.0], "start"),
        rule=rule,
        sampled=sampled,
        num_simulations=400,
        discount_factor=discount,
    )
    assert result.action[0, 0] == best
    assert result.target.weights[0, best] > 0.75
    assert result.q_values[0, best] == pytest.approx(worth, rel=0.12)


def test_known_value_with_chance_discounts_once_per_step() -> None:
    """Every real step pays 1 and all is worth 2 = 1 / (1 - 0.5): the root must say 2, not less."""

    def step(state: str, action: int) -> Step:
        if state == "decision":
            return Step(0.0, 2.0, [0.0, 0.0, 0.0], "after", True)
        return Step(1.0, 2.0, [0.0, 0.0, 0.0], "decision", False)

    result = search_one(
        ScalarWorld(step, chance=True),
        Step(0, 2.0, [0.0, 0.0, 0.0], "decision"),
        width=2,
        codes=3,
        num_simulations=80,
        discount_factor=0.5,
    )
    assert result.value[0] == pytest.approx(2.0, abs=1e-6)


def test_chance_weighs_outcomes_by_probability() -> None:
    """Action 0 pays 4 with probability 1/4, action 1 pays 0.5 for sure, at once and once."""

    def step(state: Any, action: int) -> Step:
        if state == "decision":
            logits = [float(np.log(0.25)), float(np.log(0.75))]
            return Step(0.0, [1.0, 0.5][action], logits, ("after", action), True)
        if isinstance(state, tuple):
            pays = {0: [4.0, 0.0], 1: [0.5, 0.5]}[state[1]][action]
            return Step(pays, 0.0, [0.0, 0.0], "over", False)
        return Step(0.0, 0.0, [0.0, 0.0], "over", False)

    for selection in ("max", "sample"):
        result = search_one(
            ScalarWorld(step, chance=True),
            Step(0, 0.0, [0.0, 0.0], "decision"),
            codes=2,
            num_simulations=2000,
            discount_factor=0.9,
            chance_selection=selection,
        )
        assert result.action[0, 0] == 0
        assert result.q_values[0, 0] == pytest.approx(1.0, abs=0.15)
        assert result.q_values[0, 1] == pytest.approx(0.5, abs=0.02)


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def tic_tac_toe(state: Any, action: int) -> Step:
    """A board of 0 and the players 1, 2; who moves where it is taken, or after the end, changes nothing."""
    board, mover, over = state
    if over or board[action]:
        return Step(0.0, 0.0, [0.0] * 9, (board, 3 - mover, True))
    after = (*board[:action], mover, *board[action + 1 :])
    won = any(all(after[i] == mover for i in line) for line in LINES)
    return Step(1.0 if won else 0.0, 0.0, [0.0] * 9, (after, 3 - mover, won or 0 not in after))


@pytest.mark.parametrize("rule", ["puct", "gumbel"])
@pytest.mark.parametrize("mover", [1, 2])
def test_two_players_win_and_block_with_a_uniform_network(rule: str, mover: int) -> None:
    other = 3 - mover
    win = (mover, mover, 0, other, other, 0, 0, 0, 0)
    block = (other, other, 0, mover, 0, 0, 0, 0, 0)
    for board, best in ((win, 2), (block, 2)):
        free = [i for i in range(9) if not board[i]]
        result = search_one(
            ScalarWorld(tic_tac_toe),
            Step(0, 0.0, [0.0] * 9, (board, mover, False)),
            legal=free,
            to_play=mover,
            rule=rule,
            num_simulations=200,
            discount_factor=1.0,
        )
        assert result.action[0, 0] == best
    assert result.value[0] < 0.5


def test_value_is_minus_the_opponents_one_ply_later() -> None:
    """One legal move without reward: the root is worth minus what the opponent has, discounted."""

    def step(state: int, action: int) -> Step:
        value = [0.0, 0.6, -0.6][1 + state % 2] if state else 0.6
        return Step(0.0, value, [0.0], state + 1)

    result = search_one(
        ScalarWorld(step),
        Step(0, -0.6, [0.0], 0),
        to_play=1,
        num_simulations=1,
        discount_factor=1.0,
    )
    assert result.q_values[0, 0] == pytest.approx(-0.6)
    assert result.value[0] == pytest.approx(-0.6)


def test_mean_q_has_the_movers_sign() -> None:
    """Slot 0's child is worth +1 to the opponent: Q is -1, and so is what slot 1 is taken for.

    With the sign wrong slot 1 would be taken for +1 and be visited second; here the prior keeps the
    search on slot 0, because both count the same.
    """
    root = Step(0, 0.0, [1.0, -1.0], None)
    world = constant(0.0, 1.0, 2)
    result = search_one(world, root, to_play=2, num_simulations=2, discount_factor=1.0)
    assert result.visit_counts[0].tolist() == [2, 0]


def test_noise_moves_visits_and_only_when_exploring() -> None:
    root = Step(0, 0.0, [0.0] * 4, None)

    def visits(seed: int, explore: bool, **settings: Any) -> list[int]:
        result = search_one(
            constant(0.0, 0.0, 4),
            root,
            seed=seed,
            explore=explore,
            num_simulations=60,
            **settings,
        )
        counts: list[int] = result.visit_counts[0].tolist()
        return counts

    assert visits(1, True) != visits(2, True)
    assert visits(1, True) == visits(1, True)
    assert visits(1, False) == visits(2, False) == [15, 15, 15, 15]
    assert visits(1, True, root_noise_weight=0.0) == [15, 15, 15, 15]


def test_noise_moves_visits_of_sampled_searches() -> None:
    for continuous in (False, True):
        params = [0.0, 1.0] if continuous else [0.0] * 8
        world = ScalarWorld(lambda s, a, p=params: Step(0.0, 0.0, p, None))
        seen = set()
        for seed in range(4):
            result = search_one(
                world,
                Step(0, 0.0, params, None),
                width=1 if continuous else 8,
                sampled=4,
                continuous=continuous,
                seed=seed,
                explore=True,
                num_simulations=80,
            )
            seen.add(tuple(result.visit_counts[0].tolist()))
        assert len(seen) == 4


def test_dirichlet_noise_is_a_distribution_over_legal_actions() -> None:
    """Weight 1 leaves nothing of the prior: mean 1/n, variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    legal, batch = [0, 2, 5, 6], 4000
    result = search_one(
        constant(0.0, 0.0, 7),
        Step(0, 0.0, [5.0] + [0.0] * 6, None),
        batch=batch,
        legal=legal,
        explore=True,
        num_simulations=1,
        root_noise_weight=1.0,
        root_dirichlet_alpha=0.3,
    )
    noise = result.root_policy[:, legal]
    assert result.root_policy[:, [1, 3, 4]].max() == 0
    np.testing.assert_allclose(noise.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(noise.mean(axis=0), 0.25, atol=0.02)
    np.testing.assert_allclose(noise.var(axis=0), 0.25 * 0.75 / 2.2, rtol=0.08)


def test_dirichlet_with_a_tiny_alpha_is_finite() -> None:
    result = search_one(
        constant(0.0, 0.0, 5),
        Step(0, 0.0, [0.0] * 5, None),
        batch=200,
        explore=True,
        num_simulations=1,
        root_noise_weight=1.0,
        root_dirichlet_alpha=1e-3,
    )
    np.testing.assert_allclose(result.root_policy.sum(axis=1), 1.0, atol=1e-5)
    assert (result.root_policy.max(axis=1) > 0.99).mean() > 0.9
