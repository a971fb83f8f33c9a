"""Episodes that are still open: their last observation waits here until a successor brings it a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from zero_tune.replay.storage import FinalState
from zero_tune.types import Array, Segment


@dataclass(frozen=True)
class OpenStream:
    """The newest end of one unfinished episode."""

    row: int  # of its last transition
    generation: int
    episode_id: int
    final: FinalState

    def is_continued_by(self, segment: Segment) -> bool:
        """Whether ``segment`` starts where this ends."""
        starts = int(segment.timestep[0])
        return segment.episode_id == self.episode_id and starts == self.final.timestep


def final_state(segment: Segment) -> FinalState:
    """Copies of what was seen after the last transition of ``segment``."""
    return FinalState(
        obs=np.array(segment.obs[-1]),
        legal=np.array(segment.legal[-1]),
        to_play=int(segment.to_play[-1]),
        timestep=int(segment.timestep[-1]) + 1,
    )


def to_columns(streams: Mapping[int, OpenStream]) -> dict[str, Array]:
    """Open streams as arrays [n, ...], in order of opening; no columns if there are none."""
    if not streams:
        return {}
    tips = list(streams.values())
    return {
        "stream_id": np.array(list(streams), np.int64),
        "row": np.array([tip.row for tip in tips], np.int64),
        "generation": np.array([tip.generation for tip in tips], np.int64),
        "episode_id": np.array([tip.episode_id for tip in tips], np.int64),
        "obs": np.stack([tip.final.obs for tip in tips]),
        "legal": np.stack([tip.final.legal for tip in tips]),
        "to_play": np.array([tip.final.to_play for tip in tips], np.int8),
        "timestep": np.array([tip.final.timestep for tip in tips], np.int32),
    }


def from_columns(columns: Mapping[str, Array], like: FinalState) -> dict[int, OpenStream]:
    """The inverse of ``to_columns``, from flat arrays; ``like`` gives shapes and dtypes."""
    ids = columns.get("stream_id", np.zeros(0, np.int64)).tolist()
    streams: dict[int, OpenStream] = {}
    for i, stream_id in enumerate(ids):
        final = FinalState(
            obs=_entry(columns["obs"], i, like.obs),
            legal=_entry(columns["legal"], i, like.legal) if like.legal.size else like.legal.copy(),
            to_play=int(columns["to_play"][i]),
            timestep=int(columns["timestep"][i]),
        )
        row, generation = int(columns["row"][i]), int(columns["generation"][i])
        streams[stream_id] = OpenStream(row, generation, int(columns["episode_id"][i]), final)
    return streams


def _entry(flat: Array, index: int, like: Array) -> Array:
    part = flat.reshape(-1, like.size)[index]
    return part.astype(like.dtype).reshape(like.shape)
