"""How this package compiles: helpers are built into a few entry points, which are cached on disk."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

_HELPER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

#: A helper, compiled into whichever entry point calls it; not callable from Python.
compiled: Callable[[Any], Any] = njit(**_HELPER)
#: A helper whose sums may be regrouped and whose products may be fused with them, for network layers.
regrouped: Callable[[Any], Any] = njit(**_HELPER, fastmath={"contract", "reassoc"})


def entry_point(function: Any) -> Any:
    """A function called from Python; the next process loads it from the cache.

    Numba looks for changes in the file of a cached function alone, not in those of the helpers that were
    compiled into it. So the name it is cached under carries a fingerprint of all of them.
    """
    function.__qualname__ = f"{function.__qualname__}_{source_fingerprint():08x}"
    try:
        return njit(**_OPTIONS, cache=True)(function)
    except RuntimeError:  # no folder to write a cache to: compile in every process
        return njit(**_OPTIONS)(function)


@lru_cache(maxsize=1)
def source_fingerprint() -> int:
    """A number that changes with any source file that compiled code comes from."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), *sorted((here.parent / "search").glob("*.py"))]
    files.append(here.parent / "models" / "token_kernel.py")
    return zlib.crc32(b"".join(path.read_bytes() for path in files))
