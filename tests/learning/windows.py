"""A replay buffer filled with given episodes, and the windows over all of it."""

import numpy as np

from zero_tune.replay.buffer import ReplayBuffer
from zero_tune.types import ActionSpec, EnvSpec, Segment


def env_spec(actions=3, players=1):
    return EnvSpec("x", (1,), "float32", ActionSpec("discrete", actions), players=players)


def buffer_for(unroll, td_steps, capacity=4000, actions=3, players=1, **options):
    return ReplayBuffer(
        env_spec(actions, players),
        capacity=capacity,
        num_slots=actions,
        num_unroll_steps=unroll,
        td_steps=td_steps,
        use_priority=False,
        **options,
    )


def segments(
    reward, *, terminated, length, stream, episode, first=0, to_play=None, weights=None, action=None
):
    """An episode cut into segments of ``length``; observation t is first + t."""
    count = len(reward)
    players = np.full(count + 1, -1, np.int8) if to_play is None else np.asarray(to_play, np.int8)
    weights = np.full((count, 3), 1 / 3, np.float32) if weights is None else weights
    action = np.zeros((count, 1), np.int32) if action is None else action
    for start in range(0, count, length):
        stop = min(start + length, count)
        last = stop == count
        size = stop - start
        yield Segment(
            obs=(first + np.arange(start, stop + 1, dtype=np.float32))[:, None],
            action=action[start:stop],
            reward=np.asarray(reward[start:stop], np.float32),
            root_value=np.zeros(size, np.float32),
            pred_value=np.zeros(size, np.float32),
            weights=weights[start:stop].astype(np.float32),
            candidates=None,
            legal=np.ones((size + 1, 3), bool),
            chance=None,
            to_play=players[start : stop + 1],
            timestep=np.arange(start, stop, dtype=np.int32),
            stream_id=stream,
            episode_id=episode,
            terminated=last and terminated,
            truncated=last and not terminated,
            policy_version=0,
        )


def all_rows(buffer):
    """Every drawable row, by drawing until none is new."""
    rng, seen = np.random.default_rng(0), set()
    while len(seen) < buffer.num_drawable:
        seen |= set(buffer.sample(256, rng).row.tolist())
    return np.array(sorted(seen))
