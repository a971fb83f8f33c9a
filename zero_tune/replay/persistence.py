"""A replay buffer on disk.

``rows.arrow`` has one row per ring row ever written, links, generations and draw weights included;
``open_streams.arrow`` has one row per unfinished episode. The JSON in the metadata of ``rows.arrow``
holds what the rows mean (geometry) and the counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zero_tune.errors import SnapshotMismatch
from zero_tune.replay import streams
from zero_tune.replay.arrow import read_metadata, read_table, write_table
from zero_tune.replay.sampler import PrioritySampler
from zero_tune.replay.storage import FinalState, RowStore
from zero_tune.types import Array

FORMAT = 1
ROWS_FILE, STREAMS_FILE = "rows.arrow", "open_streams.arrow"
DRAW_WEIGHT = "draw_weight"


def save_state(
    folder: Path,
    store: RowStore,
    sampler: PrioritySampler,
    open_streams: Mapping[int, streams.OpenStream],
    counters: Mapping[str, int],
    *,
    window_length: int,
) -> None:
    """Write rows, draw weights, open streams and counters into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    written = int(np.count_nonzero(store.generation))  # the ring fills from row 0 on
    columns = {name: column[:written] for name, column in store.columns().items()}
    columns[DRAW_WEIGHT] = sampler.tree.weights[:written]
    metadata = {
        "format": FORMAT,
        "geometry": _geometry(store, window_length),
        "draws": _draws(sampler),
        "written": written,
        "cursor": store.cursor,
        "size": store.size,
        "counters": dict(counters),
    }
    write_table(folder / STREAMS_FILE, streams.to_columns(open_streams), {"format": FORMAT})
    write_table(folder / ROWS_FILE, columns, metadata)


def load_state(
    folder: Path, store: RowStore, sampler: PrioritySampler, *, window_length: int
) -> tuple[dict[int, streams.OpenStream], dict[str, int]]:
    """Fill ``store`` and ``sampler``; returns the open streams and the counters.

    Draw weights are taken over as they are where the sampler's settings are those of the file, and
    derived from the priorities where they are not.

    Raises:
        SnapshotMismatch: the files are missing or damaged, or do not fit.
    """
    path = folder / ROWS_FILE
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        raise SnapshotMismatch(f"{path} has format {metadata.get('format')!r}; expected {FORMAT}")
    _check_geometry(metadata["geometry"], _geometry(store, window_length), path)
    like = FinalState(store.obs[0], store.legal[0], 0, 0)
    tips: dict[int, streams.OpenStream] = {}
    for _, columns in read_table(folder / STREAMS_FILE):
        tips |= streams.from_columns(columns, like)

    weights = np.zeros(store.capacity, np.float64)
    targets = {**store.columns(), DRAW_WEIGHT: weights}
    store.reset()
    found = 0
    for start, columns in read_table(path):
        for name, flat in columns.items():
            found = max(found, _fill(targets[name], start, flat))
    if found != metadata["written"]:
        raise SnapshotMismatch(f"{path} holds {found} rows; expected {metadata['written']}")
    store.cursor, store.size = metadata["cursor"], metadata["size"]
    store.recount()
    if metadata["draws"] == _draws(sampler):
        sampler.tree.rebuild(weights, store.priority)
    else:
        sampler.rebuild()
    return tips, metadata["counters"]


def _geometry(store: RowStore, window_length: int) -> dict[str, Any]:
    """Everything that the meaning of a stored row depends on, as plain JSON values."""
    columns = {
        name: [str(column.dtype), *column.shape[1:]] for name, column in store.columns().items()
    }
    return {
        "capacity": store.capacity,
        "reach": store.reach,
        "window_length": window_length,
        "columns": columns,
    }


def _draws(sampler: PrioritySampler) -> dict[str, Any]:
    return {"use_priority": sampler.use_priority, "alpha": sampler.alpha}


def _check_geometry(stored: Mapping[str, Any], own: Mapping[str, Any], path: Path) -> None:
    stored, own = _flat(stored), _flat(own)
    wrong = [
        f"{name} is {own.get(name)!r} here and {stored.get(name)!r} in the file"
        for name in {**own, **stored}
        if stored.get(name) != own.get(name)
    ]
    if wrong:
        raise SnapshotMismatch(f"{path} does not fit this replay buffer: {'; '.join(wrong)}")


def _flat(geometry: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in geometry.items() if name != "columns"}
    return rest | dict(geometry["columns"])


def _fill(target: Array, start: int, flat: Array) -> int:
    """Copy the flat values of a record batch into rows ``start`` on; returns where they end."""
    values = flat.view(np.bool_) if target.dtype == np.bool_ else flat
    values = values.reshape(-1, *target.shape[1:])
    end = start + len(values)
    target[start:end] = values
    return end
