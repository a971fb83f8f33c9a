"""Ray Tune plugin that trains MuZero-family and UniZero agents.

Names are resolved on first use, so that ``import zero_tune`` imports neither Ray nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Config": "config",
    "ConfigError": "errors",
    "EvalResult": "types",
    "NonFiniteError": "errors",
    "POLICIES": "policies",
    "ResourceError": "errors",
    "Segment": "types",
    "SnapshotMismatch": "errors",
    "WorkerFailed": "errors",
    "resolve": "presets",
    "MuZeroAsyncTrainable": "tune.trainable",
    "MuZeroSyncTrainable": "tune.trainable",
    "best_evaluated": "tune.results",
    "load_policy": "loading",
    "train_muzero_segment": "entry",
    "train_muzero_segment_async": "entry",
    "train_unizero_segment": "entry",
    "train_unizero_segment_async": "entry",
}

__all__ = ["__version__", *_LAZY]

if TYPE_CHECKING:
    from zero_tune.config import Config as Config
    from zero_tune.entry import train_muzero_segment as train_muzero_segment
    from zero_tune.entry import train_muzero_segment_async as train_muzero_segment_async
    from zero_tune.entry import train_unizero_segment as train_unizero_segment
    from zero_tune.entry import train_unizero_segment_async as train_unizero_segment_async
    from zero_tune.errors import ConfigError as ConfigError
    from zero_tune.errors import NonFiniteError as NonFiniteError
    from zero_tune.errors import ResourceError as ResourceError
    from zero_tune.errors import SnapshotMismatch as SnapshotMismatch
    from zero_tune.errors import WorkerFailed as WorkerFailed
    from zero_tune.loading import load_policy as load_policy
    from zero_tune.policies import POLICIES as POLICIES
    from zero_tune.presets import resolve as resolve
    from zero_tune.tune.results import best_evaluated as best_evaluated
    from zero_tune.tune.trainable import MuZeroAsyncTrainable as MuZeroAsyncTrainable
    from zero_tune.tune.trainable import MuZeroSyncTrainable as MuZeroSyncTrainable
    from zero_tune.types import EvalResult as EvalResult
    from zero_tune.types import Segment as Segment


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'zero_tune' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"zero_tune.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
