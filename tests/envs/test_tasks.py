"""The tasks' rules, and the optima their docstrings claim."""

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

import zero_tune.envs.registry  # noqa: F401  registers the tasks
from zero_tune.envs.tasks.game2048 import move_board
from zero_tune.envs.tasks.reach import COST, SPEED, STEPS, optimal_return
from zero_tune.envs.tasks.tictactoe import best_value, place, winner


def play(env, choose, seed):
    obs, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, info = env.step(choose(env, obs, info))
        total += reward
        over = terminated or truncated
    return total


def test_catch_can_always_be_won_and_random_play_scores_minus_point_six():
    env = gym.make("zero_tune/Catch-v0").unwrapped

    def follow(env, obs, info):
        return 1 + int(np.sign(env._ball - env._paddle))

    assert all(play(env, follow, seed) == 1.0 for seed in range(20))
    rng = np.random.default_rng(0)
    scores = [play(env, lambda *_: int(rng.integers(3)), s) for s in range(2000)]
    assert abs(np.mean(scores) + 0.60) < 0.05


def test_the_blind_ball_is_drawn_in_the_first_frame_only():
    env = gym.make("zero_tune/BlindCatch-v0")
    obs, _ = env.reset(seed=0)
    assert obs[0, 0].sum() == 1
    for _ in range(10):
        obs, *_ = env.step(1)
        assert obs[0, :-1].sum() == 0


@pytest.mark.parametrize("image", [False, True])
def test_memory_cue_rewards_the_cue_and_hides_it(image):
    env = gym.make("zero_tune/MemoryCue-v0", L=4, image=image)
    cues = set()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        cue = int(np.argmax(obs.reshape(-1)[:2]))
        cues.add(cue)
        frames = []
        for t in range(6):
            obs, reward, over, _, _ = env.step(cue)
            frames.append(obs)
            assert over == (t == 5)
        assert reward == 1.0
        assert all(f.reshape(-1)[:2].sum() == 0 for f in frames)
    assert cues == {0, 1}


def test_chance_match_is_worth_ten_with_and_three_without_looking():
    env = gym.make("zero_tune/ChanceMatch-v0")

    def look(env, obs, info):
        return 1 if info["action_mask"][0] else 2 + info["chance"]

    assert play(env, look, 0) == 10.0
    assert abs(play(env, lambda *_: 0, 0) - 3.0) < 1e-9


def spawns(board):
    empty = [i for i, x in enumerate(board) if x == 0]
    for cell in empty:
        for tile, chance in ((1, 0.9), (2, 0.1)):
            yield (*board[:cell], tile, *board[cell + 1 :]), chance / len(empty)


@cache
def slide(board, shape, action):
    after, gained = move_board(np.array(board).reshape(shape), action)
    return tuple(int(x) for x in after.reshape(-1)), gained


def exact_2048(shape, choose):
    @cache
    def value(board):
        options = []
        for action in range(4):
            after, gained = slide(board, shape, action)
            if after != board:
                options.append(gained + sum(p * value(b) for b, p in spawns(after)))
        return choose(options) if options else 0.0

    empty = (0,) * (shape[0] * shape[1])
    return sum(p * q * value(c) for b, p in spawns(empty) for c, q in spawns(b))


def test_2048_on_two_by_two_is_worth_67():
    assert abs(exact_2048((2, 2), max) - 67.0) < 0.05
    assert abs(exact_2048((2, 2), np.mean) - 19.7) < 0.05


def test_2048_hides_moves_that_change_nothing_and_reports_where_a_tile_appeared():
    env = gym.make("zero_tune/MiniGame2048-v0", R=2, C=3).unwrapped
    rng = np.random.default_rng(0)
    for seed in range(20):
        obs, info = env.reset(seed=seed)
        over = False
        while not over:
            assert obs.shape == (16, 2, 3) and 0 <= info["chance"] < 12
            cell, kind = divmod(info["chance"], 2)
            assert env.board.reshape(-1)[cell] == 1 + kind
            before = env.board.copy()
            obs, _, over, _, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
            assert not np.array_equal(before, env.board)


def test_point_reach_optimum_agrees_with_value_iteration():
    grid = np.linspace(-1, 1, 401)
    moves = np.linspace(-1, 1, 81)
    value = np.zeros_like(grid)
    for _ in range(STEPS):
        nxt = np.clip(grid[:, None] + SPEED * moves[None], -1, 1)
        value = (-np.abs(nxt) - COST * moves**2 + np.interp(nxt, grid, value)).max(1)
    for x0 in (-1.0, -0.55, 0.13, 0.4, 0.99):
        assert abs(optimal_return(x0) - np.interp(x0, grid, value)) < 5e-3


def test_tictactoe_rules():
    assert winner((1, 1, 1, 0, 2, 2, 0, 0, 0)) == 1
    assert best_value((0,) * 9, 1) == 0  # a draw under perfect play
    env = gym.make("zero_tune/TicTacToe-v0").unwrapped
    obs, _ = env.reset(seed=0)
    movers, rewards = [obs["to_play"]], []
    for cell in (0, 3, 1, 4, 2):
        obs, reward, over, _, _ = env.step(cell)
        movers.append(obs["to_play"])
        rewards.append(reward)
    assert over and rewards == [0, 0, 0, 0, 1.0] and movers == [1, 2, 1, 2, 1, 2]


@cache
def against_random(board, mine, to_move):
    """Exact value for a perfect player 1 against a uniform mover."""
    won = winner(board)
    if won or 0 not in board:
        return 0.0 if not won else (1.0 if won == mine else -1.0)
    values = [
        against_random(place(board, i, to_move), mine, 3 - to_move)
        for i in range(9)
        if not board[i]
    ]
    return max(values) if to_move == mine else float(np.mean(values))


def test_tictactoe_optima_against_a_random_mover():
    assert abs(against_random((0,) * 9, 1, 1) - 0.995) < 1e-3
    assert abs(against_random((0,) * 9, 2, 1) - 0.925) < 1e-3


def test_the_perfect_opponent_never_loses():
    env = gym.make("zero_tune/TicTacToe-v0", opponent="perfect", agent_first=None).unwrapped
    rng = np.random.default_rng(0)
    scores = [
        play(env, lambda e, o, i: int(rng.choice(np.flatnonzero(o["action_mask"]))), s)
        for s in range(40)
    ]
    assert max(scores) <= 0.0
