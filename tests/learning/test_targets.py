"""Targets against hand-computed figures, a slow reference, and another project's numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.learning.windows import all_rows, buffer_for, segments
from tests.reference.targets_reference import Episode, prefix_targets, reward_target, value_target
from zero_tune.learning.targets import (
    TargetSettings,
    bootstrap_index,
    make_targets,
    needs_bootstrap,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "buffer_targets_lightzero.json").read_text()
)


def episode_targets(
    reward, terminated, td_steps, discount, value=10.0, unroll=2, to_play=None, length=4, **settings
):
    """Targets of every start of one episode, ordered by time."""
    buffer = buffer_for(unroll, td_steps, players=1 if to_play is None else 2)
    for segment in segments(
        reward, terminated=terminated, length=length, stream=1, episode=0, to_play=to_play
    ):
        buffer.append(segment)
    window = buffer.window(all_rows(buffer))
    order = np.argsort(window.timestep[:, 0])
    window = buffer.window(window.row[order])
    made = TargetSettings(unroll, td_steps, discount, **settings)
    values = np.full((len(window.row), unroll + 1), value, np.float32)
    return make_targets(window, values, made), window


def test_discount_on_the_bootstrap_and_none_past_a_true_end():
    targets, _ = episode_targets(np.ones(6), True, 3, 0.9)
    assert np.allclose(targets.value[:, 0], [10.0, 10.0, 10.0, 2.71, 1.9, 1.0], atol=1e-4)


def test_a_cut_bootstraps_from_its_final_observation():
    targets, _ = episode_targets(np.ones(6), False, 3, 0.9)
    assert np.allclose(targets.value[:, 0], 10.0, atol=1e-4)
    ended, _ = episode_targets(np.ones(6), False, 3, 0.9, truncation="terminal")
    assert np.allclose(ended.value[:, 0], [10.0, 10.0, 10.0, 2.71, 1.9, 1.0], atol=1e-4)


def test_hand_computed_value_targets_at_both_kinds_of_end():
    done, _ = episode_targets([1, 2, 3, 4], True, 2, 0.5, value=8.0)
    assert np.allclose(done.value[[0, 2, 3], 0], [4.0, 5.0, 4.0])
    cut, _ = episode_targets([1, 2, 3, 4], False, 2, 0.5, value=8.0)
    assert np.allclose(cut.value[[2, 3], 0], [7.0, 8.0])


def test_unroll_step_k_has_the_reward_of_its_own_transition():
    targets, _ = episode_targets(np.arange(8), True, 2, 1.0, value=0.0)
    assert targets.value[0, 0] == 0 + 1 and targets.value[3, 1] == 4 + 5
    assert targets.reward[0].tolist() == [0.0, 1.0] and targets.reward[3].tolist() == [3.0, 4.0]


def test_past_a_true_end_all_is_absorbing_and_past_a_cut_nothing_counts():
    done, _ = episode_targets(np.ones(3), True, 2, 0.9, unroll=5)
    assert done.value[1, 2:].tolist() == [0.0] * 4 and done.reward[1, 2:].tolist() == [0.0] * 3
    assert done.policy_mask[1].tolist() == [1, 1, 0, 0, 0, 0]
    assert done.value_mask[1].tolist() == [1] * 6 and done.reward_mask[1].tolist() == [1] * 5
    assert done.state_mask[1].tolist() == [1, 1, 1, 0, 0, 0]
    cut, _ = episode_targets(np.ones(3), False, 2, 0.9, unroll=5)
    assert cut.value_mask[1].tolist() == [1, 1, 0, 0, 0, 0]
    assert cut.reward_mask[1].tolist() == [1, 1, 0, 0, 0]


def test_prefixes_restart_at_each_sample():
    targets, _ = episode_targets(
        np.ones(12), True, 2, 1.0, value=0.0, unroll=7, value_prefix_horizon=5
    )
    for row in targets.reward[:3]:
        assert row.tolist() == [1, 2, 3, 4, 5, 1, 2]


def test_two_players_see_the_same_game_with_opposite_signs():
    movers = np.array([1, 2, 1, 2, 1, 2], np.int8)
    targets, _ = episode_targets([0, 0, 0, 0, 1], True, 9, 1.0, value=0.0, to_play=movers)
    assert targets.value[:, 0].tolist() == [1.0, -1.0, 1.0, -1.0, 1.0]
    assert targets.reward[:, 0].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_bootstrap_from_the_other_players_state_changes_its_sign():
    movers = np.array([1, 2] * 5, np.int8)[:9]
    targets, _ = episode_targets(np.zeros(8), True, 3, 1.0, value=0.5, to_play=movers)
    assert targets.value[0, 0] == -0.5


@pytest.mark.parametrize("seed", range(6))
def test_targets_equal_the_reference_over_random_episodes_cut_anywhere(seed):
    rng = np.random.default_rng(seed)
    unroll, td_steps, discount = int(rng.integers(1, 7)), int(rng.integers(1, 6)), 0.93
    players, horizon = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    buffer = buffer_for(unroll, td_steps, players=players)
    episodes = {}
    for number in range(14):
        length = int(rng.integers(1, 26))
        movers = rng.integers(1, 3, length + 1) if players == 2 else np.full(length + 1, -1)
        episode = Episode(
            rng.normal(size=length).astype(np.float32),
            rng.normal(size=length + 1).astype(np.float32),
            movers,
            bool(rng.integers(2)),
        )
        episodes[number] = episode
        for segment in segments(
            episode.reward,
            terminated=episode.terminated,
            length=int(rng.integers(1, 9)),
            stream=number,
            episode=0,
            first=1000 * number,
            to_play=movers,
        ):
            buffer.append(segment)
    rows = all_rows(buffer)
    assert len(rows) == sum(len(e.reward) for e in episodes.values())  # each state drawable once
    window = buffer.window(rows)
    settings = TargetSettings(unroll, td_steps, discount)
    index = bootstrap_index(window, settings)
    states = np.take_along_axis(window.rows, index, 1)
    names = buffer.observations(states)[..., 0].astype(int)  # 1000 * episode + t
    values = np.array([[episodes[n // 1000].value[n % 1000] for n in row] for row in names])
    values = np.where(needs_bootstrap(window, settings), values, np.nan)
    made = make_targets(window, np.nan_to_num(values, nan=1e9), settings)
    prefix = make_targets(
        window,
        np.nan_to_num(values, nan=1e9),
        TargetSettings(unroll, td_steps, discount, value_prefix_horizon=horizon),
    )
    starts = buffer.observations(rows)[..., 0].astype(int)
    for b, name in enumerate(starts):
        episode, t = episodes[name // 1000], name % 1000
        prefixes = prefix_targets(episode, t, unroll, horizon)
        for k in range(unroll + 1):
            want = value_target(episode, t + k, td_steps, discount)
            assert made.value_mask[b, k] == (want is not None)
            assert want is None or abs(made.value[b, k] - want) < 1e-4
            assert made.policy_mask[b, k] == (t + k < len(episode.reward))
            assert made.state_mask[b, k] == (t + k <= len(episode.reward))
            if k < unroll:
                want = reward_target(episode, t + k)
                assert made.reward_mask[b, k] == (want is not None)
                assert want is None or abs(made.reward[b, k] - want) < 1e-5
                assert prefixes[k] is None or abs(prefix.reward[b, k] - prefixes[k]) < 1e-4


@pytest.mark.parametrize("number", range(len(GOLDEN["episodes"])))
def test_targets_equal_lightzeros_for_finished_episodes(number):
    """All its episodes end in a true terminal, where it and the paper agree.

    One exception: its n is min(td_steps, steps left from the start of the window), the same for the whole
    unroll, while ours counts from each state. The two differ only where fewer than td_steps steps are left
    after the start, and there all bootstraps lie past the end: the sums agree.
    """
    case, config = GOLDEN["episodes"][number], GOLDEN["config"]
    unroll, td_steps = config["num_unroll_steps"], config["td_steps"]
    steps = np.arange(case["episode_length"])
    reward = ((7 * steps) % 5 - 1) / 2
    table = np.array([(0.7, 0.2, 0.1), (0.1, 0.8, 0.1), (0.3, 0.3, 0.4), (0, 0.5, 0.5)])
    buffer = buffer_for(unroll, td_steps)
    for segment in segments(
        reward, terminated=True, length=6, stream=1, episode=0, first=0, weights=table[steps % 4]
    ):
        buffer.append(segment)
    window = buffer.window(all_rows(buffer))
    order = np.argsort(window.timestep[:, 0])
    window = buffer.window(window.row[order])
    settings = TargetSettings(unroll, td_steps, config["discount"])
    states = np.take_along_axis(window.rows, bootstrap_index(window, settings), 1)
    index = buffer.observations(states)[..., 0].astype(int)
    values = 0.25 * index - 1
    made = make_targets(window, values, settings)
    want = case["batch"]
    assert np.allclose(made.reward, np.array(want["target_reward"])[:, :unroll], atol=1e-5)
    assert np.allclose(made.value, want["target_value"], atol=2e-3)
    assert np.allclose(window.weights[:, : unroll + 1], want["target_policy"], atol=1e-6)
