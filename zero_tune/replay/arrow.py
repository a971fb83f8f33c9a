"""NumPy columns in Arrow IPC files: exact, memory-mapped on load, and free of code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zero_tune.errors import SnapshotMismatch
from zero_tune.types import Array

#: Rows per record batch: bounds the memory that writing and reading need beside the buffer itself.
BATCH_ROWS = 4096


def write_table(path: Path, columns: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Write equally long arrays [n, ...] as one Arrow IPC file.

    Trailing dimensions become a fixed-size list, bool becomes uint8; columns without elements are
    left out.
    """
    columns = {name: column for name, column in columns.items() if _width(column)}
    length = max((len(column) for column in columns.values()), default=0)
    schema = pa.schema([(name, _arrow_type(column)) for name, column in columns.items()])
    schema = schema.with_metadata({"zero_tune": json.dumps(dict(metadata))})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, length, BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            arrays = [_to_arrow(column[part]) for column in columns.values()]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_metadata(path: Path) -> dict[str, Any]:
    """The JSON stored with a table.

    Raises:
        SnapshotMismatch: the file is missing, damaged, or not one of ours.
    """
    with _open(path) as reader:
        text = (reader.schema.metadata or {}).get(b"zero_tune")
    if text is None:
        raise SnapshotMismatch(f"{path} was not written by zero_tune")
    return dict(json.loads(text))


def read_table(path: Path) -> Iterator[tuple[int, dict[str, Array]]]:
    """Record batches of a file: first row, and flat read-only arrays by column name.

    Raises:
        SnapshotMismatch: the file is missing or damaged.
    """
    with _open(path) as reader:
        start = 0
        for number in range(reader.num_record_batches):
            try:
                batch = reader.get_batch(number)
            except (OSError, pa.ArrowInvalid) as error:
                raise SnapshotMismatch(f"{path} is damaged: {error}") from error
            names = batch.schema.names
            yield start, {n: _to_numpy(c) for n, c in zip(names, batch.columns, strict=True)}
            start += batch.num_rows


def _open(path: Path) -> Any:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise SnapshotMismatch(f"{path} cannot be read as an Arrow file: {error}") from error


def _width(column: Array) -> int:
    return int(np.prod(column.shape[1:], dtype=np.int64))


def _value_type(column: Array) -> Any:
    return pa.uint8() if column.dtype == np.bool_ else pa.from_numpy_dtype(column.dtype)


def _arrow_type(column: Array) -> Any:
    value = _value_type(column)
    return value if column.ndim == 1 else pa.list_(value, _width(column))


def _to_arrow(column: Array) -> Any:
    flat = np.ascontiguousarray(column).reshape(-1)
    values = pa.array(flat.view(np.uint8) if flat.dtype == np.bool_ else flat)
    return values if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, _width(column))


def _to_numpy(column: Any) -> Array:
    values = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return np.asarray(values.to_numpy(zero_copy_only=True))
