"""Scripted segments whose every number tells where it belongs."""

from __future__ import annotations

import numpy as np

from zero_tune.types import ActionSpec, EnvSpec, Segment

NUM_ACTIONS, NUM_SLOTS = 3, 3
VECTOR = EnvSpec("scripted", (4,), "float32", ActionSpec("discrete", NUM_ACTIONS), chance_size=5)
IMAGE = EnvSpec("scripted", (2, 3, 4), "uint8", ActionSpec("discrete", NUM_ACTIONS))
CONTINUOUS = EnvSpec("scripted", (4,), "float32", ActionSpec("continuous", 2))


def key_obs(env: EnvSpec, stream: int, episode: int, t: int) -> np.ndarray:
    """One frame that starts with (stream, episode, t)."""
    frame = np.zeros(env.obs_shape, env.obs_dtype)
    frame.reshape(-1)[:3] = stream, episode, t
    return frame


def key_of(frame: np.ndarray) -> tuple[int, int, int]:
    """(stream, episode, t) of a frame."""
    return tuple(int(x) for x in frame.reshape(-1)[:3])


def make_segment(
    stream: int = 0,
    episode: int = 0,
    start: int = 0,
    length: int = 4,
    end: str | None = None,
    *,
    env: EnvSpec = VECTOR,
    candidate_dim: int = 0,
    version: int = 0,
) -> Segment:
    """Steps start .. start+length-1; the numbers follow from (stream, episode, t) alone."""
    rng = [np.random.default_rng((stream, episode, start + i)) for i in range(length + 1)]
    dim, discrete = env.action.dim, env.action.kind == "discrete"
    action = [g.integers(NUM_ACTIONS, size=dim) if discrete else g.random(dim) for g in rng[:-1]]
    num_actions = NUM_ACTIONS if discrete else 0
    return Segment(
        obs=np.stack([key_obs(env, stream, episode, start + i) for i in range(length + 1)]),
        action=np.array(action, env.action.dtype),
        reward=np.array([g.normal() for g in rng[:-1]], np.float32),
        root_value=np.array([g.normal() for g in rng[:-1]], np.float32),
        pred_value=np.array([g.normal() for g in rng[:-1]], np.float32),
        weights=np.stack([g.dirichlet(np.ones(NUM_SLOTS)) for g in rng[:-1]]).astype(np.float32),
        candidates=(
            np.stack([g.random((NUM_SLOTS, candidate_dim)) for g in rng[:-1]]).astype(
                env.action.dtype
            )
            if candidate_dim
            else None
        ),
        legal=np.stack([g.random(num_actions) < 0.7 for g in rng]),
        chance=np.array([g.integers(5) for g in rng[:-1]], np.int32) if env.chance_size else None,
        to_play=np.array([1 + (start + i) % 2 for i in range(length + 1)], np.int8),
        timestep=np.arange(start, start + length, dtype=np.int32),
        stream_id=stream,
        episode_id=episode,
        terminated=end == "terminated",
        truncated=end == "truncated",
        policy_version=version,
    )


def random_segments(
    rng: np.random.Generator,
    *,
    env: EnvSpec = VECTOR,
    streams: int = 3,
    steps: int = 400,
    longest_episode: int = 25,
    longest_segment: int = 10,
    candidate_dim: int = 0,
) -> list[Segment]:
    """Segments of several streams in a random interleaving, each stream in order."""
    state = {s: [0, 0, int(rng.integers(1, longest_episode + 1))] for s in range(streams)}
    out: list[Segment] = []
    made = 0
    while made < steps:
        stream = int(rng.integers(streams))
        episode, t, length = state[stream]
        take = int(min(length - t, rng.integers(1, longest_segment + 1)))
        done = t + take == length
        end = str(rng.choice(["terminated", "truncated"])) if done else None
        out.append(
            make_segment(
                stream, episode, t, take, end, env=env, candidate_dim=candidate_dim, version=made
            )
        )
        made += take
        new_length = int(rng.integers(1, longest_episode + 1))
        state[stream] = [episode + 1, 0, new_length] if done else [episode, t + take, length]
    return out
