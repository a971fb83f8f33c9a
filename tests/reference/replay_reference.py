"""Slow replay for tests: whole episodes in lists, and every rule spelt out by its definition."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

Key = tuple[int, int, int]  # stream, episode, timestep


class Episode:
    """One episode as it is known so far."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []  # observation, legal, to_play; one more than steps
        self.end: str | None = None


class ReplayReference:
    """Keeps all episodes for ever, and beside them a queue of the keys that a ring would still hold."""

    def __init__(self, capacity: int, frame_stack: int, history_length: int, window: int) -> None:
        self.capacity, self.window_length = capacity, window
        self.frame_stack, self.history_length = frame_stack, history_length
        self.episodes: dict[tuple[int, int], Episode] = {}
        self.held: deque[Key] = deque()
        self.current: dict[int, int] = {}  # stream -> its open episode

    def append(self, segment: Any) -> None:
        name = (segment.stream_id, segment.episode_id)
        episode = self.episodes.setdefault(name, Episode())
        for i in range(len(segment.reward)):
            del episode.states[len(episode.steps) :]
            episode.states.append(_state(segment, i))
            self._hold((*name, len(episode.steps)))
            episode.steps.append(_step(segment, i))
            episode.states.append(_state(segment, i + 1))
        self.current[segment.stream_id] = segment.episode_id
        if segment.terminated or segment.truncated:
            self._end(segment.stream_id, "terminated" if segment.terminated else "truncated")

    def close_stream(self, stream: int) -> None:
        if stream in self.current:
            name = (stream, self.current[stream])
            last = (*name, len(self.episodes[name].steps) - 1)
            if last in self.held and not (len(self.held) == self.capacity and self.held[0] == last):
                self._end(stream, "truncated")
            else:
                del self.current[stream]

    def _end(self, stream: int, end: str) -> None:
        name = (stream, self.current.pop(stream))
        self.episodes[name].end = end
        self._hold((*name, len(self.episodes[name].steps)))

    def _hold(self, key: Key) -> None:
        if len(self.held) == self.capacity:
            self.held.popleft()
        self.held.append(key)

    def drawable(self) -> set[Key]:
        """Steps whose whole future window is known and whose whole needed past is held."""
        held, found = set(self.held), set()
        reach = self.frame_stack + self.history_length - 2
        for stream, number, t in held:
            episode = self.episodes[stream, number]
            length = len(episode.steps)
            if t == length:
                continue  # the final observation has no transition
            seen = length + 1 if episode.end else length
            future = seen - t >= self.window_length or episode.end is not None
            past = all((stream, number, t - back) in held for back in range(min(t, reach) + 1))
            if future and past:
                found.add((stream, number, t))
        return found

    def window(self, key: Key) -> dict[str, Any]:
        """What a learner may read at ``key``: states t.. and transitions t.., blank past the end."""
        stream, number, t = key
        episode = self.episodes[stream, number]
        length = len(episode.steps)
        states = [min(t + w, length) for w in range(self.window_length)]
        ends_inside = episode.end is not None and length - t <= self.window_length - 1
        window: dict[str, Any] = {
            "keys": [(stream, number, s) for s in states],
            "num_real": min(length - t, self.window_length - 1),
            "terminated": ends_inside and episode.end == "terminated",
            "truncated": ends_inside and episode.end == "truncated",
            "policy_version": episode.steps[t]["policy_version"],
            "timestep": np.array(states),
            "legal": np.array([episode.states[s]["legal"] for s in states]),
            "to_play": np.array([episode.states[s]["to_play"] for s in states]),
        }
        for name, blank in (("action", 0), ("reward", 0), ("chance", -1)):
            window[name] = self._column(episode, name, range(t, t + self.window_length - 1), blank)
        for name in ("weights", "root_value", "candidates"):
            window[name] = self._column(episode, name, range(t, t + self.window_length), 0)
        return window

    def _column(self, episode: Episode, name: str, steps: range, blank: int) -> Any:
        first = episode.steps[0][name]
        if first is None:
            return None
        nothing = np.full_like(first, blank)
        known = len(episode.steps)
        return np.array([episode.steps[s][name] if s < known else nothing for s in steps])

    def observation(self, key: Key) -> np.ndarray:
        """Frames t-F+1 .. t on the first axis, the episode's first frame where t is too small."""
        stream, number, t = key
        episode = self.episodes[stream, number]
        frames = [max(0, t - back) for back in reversed(range(self.frame_stack))]
        return np.concatenate([episode.states[f]["obs"] for f in frames], axis=0)

    def history(self, key: Key) -> dict[str, Any]:
        """The valid timesteps up to ``key``: stacked observations and the actions between them."""
        stream, number, t = key
        steps = range(max(0, t - self.history_length + 1), t + 1)
        episode = self.episodes[stream, number]
        return {
            "obs": np.array([self.observation((stream, number, s)) for s in steps]),
            "action": [episode.steps[s]["action"] for s in steps[:-1]],
            "length": len(steps),
            "timestep": t,
        }


def _state(segment: Any, i: int) -> dict[str, Any]:
    return {"obs": segment.obs[i], "legal": segment.legal[i], "to_play": segment.to_play[i]}


def _step(segment: Any, i: int) -> dict[str, Any]:
    names = ("action", "reward", "weights", "root_value", "chance", "candidates")
    values = {name: getattr(segment, name) for name in names}
    step = {name: None if value is None else value[i] for name, value in values.items()}
    return step | {"policy_version": segment.policy_version}
