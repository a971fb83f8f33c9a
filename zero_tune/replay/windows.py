"""What a learner reads of the rows: windows forward along the links, stacks and histories backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zero_tune.replay.storage import TERMINAL, TRUNCATED, RowStore
from zero_tune.types import Array, Window


class Sample(NamedTuple):
    """Start rows of one batch."""

    row: Array  # [B] int64
    generation: Array  # [B] int64, with `row` the identity of what was drawn
    weight: Array  # [B] f32 importance weights, max 1


class HistoryArrays(NamedTuple):
    """NumPy form of `types.History`: the last M timesteps of an episode, newest last.

    Slots before the episode's start repeat its first observation, with action 0.
    """

    obs: Array  # [N, M, F*C, H, W] or [N, M, F*O], in the stored dtype
    action: Array  # [N, M, D]; action[:, m] was executed in obs[:, m]; the last slot is 0
    length: Array  # [N] int64 valid timesteps, 1..M
    timestep: Array  # [N] int64 of the newest observation


class StateFields(NamedTuple):
    """What a search needs of a state beside its observation."""

    legal: Array  # [..., A] bool, width 0 for continuous actions
    to_play: Array  # [...] i8


def read_window(store: RowStore, row: Array, length: int) -> Window:
    """The ``length`` states from each of ``row`` [B] on, by following next links."""
    chain = np.empty((length, len(row)), np.int64)
    chain[0] = row
    for step in range(1, length):
        chain[step] = store.next_row[chain[step - 1]]
    num_real = np.count_nonzero(chain[1:] != chain[:-1], axis=0).astype(np.int32)
    rows = np.ascontiguousarray(chain.T)
    starts = rows[:, :-1]
    status = store.status[rows[:, -1]]
    window = Window(
        row=row,
        generation=store.generation[row],
        rows=rows,
        num_real=num_real,
        terminated=status == TERMINAL,
        truncated=status == TRUNCATED,
        action=np.take(store.action, starts, axis=0),
        reward=np.take(store.reward, starts),
        weights=np.take(store.weights, rows, axis=0),
        candidates=None if store.candidates is None else np.take(store.candidates, rows, axis=0),
        root_value=np.take(store.root_value, rows),
        legal=np.take(store.legal, rows, axis=0),
        chance=None if store.chance is None else np.take(store.chance, starts),
        to_play=np.take(store.to_play, rows),
        timestep=np.take(store.timestep, rows),
        policy_version=store.policy_version[row],
        action_kind="continuous" if store.action.dtype.kind == "f" else "discrete",
    )
    # Past an episode end every field repeats the tail row, which is all zeros. Only a chain that is
    # still open (never drawn, but a caller may ask for it) repeats a transition and needs blanking.
    unended = (status < TERMINAL) & (num_real < length - 1)
    return _blank_past_end(window) if unended.any() else window


def _blank_past_end(window: Window) -> Window:
    past = np.arange(window.rows.shape[1]) > window.num_real[:, None]
    window.weights[past] = 0
    window.root_value[past] = 0
    if window.candidates is not None:
        window.candidates[past] = 0
    # The state at num_real is the last row stored; the transition out of it leads nowhere yet.
    past = past[:, 1:]
    window.action[past] = 0
    window.reward[past] = 0
    if window.chance is not None:
        window.chance[past] = -1
    return window


def read_observations(store: RowStore, rows: Array, frame_stack: int) -> Array:
    """Stacked observations [..., F*C, H, W] or [..., F*O] of ``rows`` [...], oldest frame first."""
    if frame_stack > 1:
        frames = [rows]
        for _ in range(frame_stack - 1):
            frames.append(store.prev_row[frames[-1]])
        index = np.stack(frames[::-1], axis=-1)
    else:
        index = rows
    first, *rest = store.obs.shape[1:]
    return np.take(store.obs, index, axis=0).reshape(*rows.shape, frame_stack * first, *rest)


def read_history(store: RowStore, rows: Array, length: int, frame_stack: int) -> HistoryArrays:
    """The last ``length`` timesteps up to each of ``rows`` [N]."""
    steps = [rows]
    for _ in range(length - 1):
        steps.append(store.prev_row[steps[-1]])
    index = np.stack(steps[::-1], axis=1)
    moved = index[:, 1:] != index[:, :-1]
    action = np.take(store.action, index, axis=0)
    action[:, :-1][~moved] = 0
    action[:, -1] = 0
    return HistoryArrays(
        obs=read_observations(store, index, frame_stack),
        action=action,
        length=1 + np.count_nonzero(moved, axis=1),
        timestep=store.timestep[rows].astype(np.int64),
    )
