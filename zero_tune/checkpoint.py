"""Checkpoint directories.

    manifest.json      format, policy type, environment, versions, config, train_iter, envstep
    evaluated/         weights.pt and score.json of exactly the snapshot that was evaluated
    resume/            state.pt (learner, optimiser, counters, generators), buffer/ (optional, Arrow)

Weights and state are tensors and plain Python, loaded with ``weights_only=True``: opening a checkpoint
never runs code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import zero_tune
from zero_tune.config import Config
from zero_tune.errors import NonFiniteError, SnapshotMismatch
from zero_tune.types import EnvSpec, EvalResult, Snapshot

if TYPE_CHECKING:
    from zero_tune.replay.buffer import ReplayBuffer

FORMAT = 1
_PREFIXES = ("module.", "_orig_mod.")


def write_checkpoint(
    folder: str | Path,
    config: Config,
    env: EnvSpec,
    *,
    snapshot: Snapshot | None,
    result: EvalResult | None,
    resume: Mapping[str, Any] | None,
    buffer: ReplayBuffer | None = None,
    train_iter: int,
    envstep: int,
) -> None:
    """Write a whole checkpoint into ``folder``, or nothing.

    Args:
        snapshot: the evaluated weights; with ``result``, its score.
        resume: the driver's state.
        buffer: saved too if given.

    Raises:
        NonFiniteError: a weight is NaN or infinite.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / ".incomplete"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        if snapshot is not None and result is not None:
            _write_evaluated(part / "evaluated", snapshot, result)
        if resume is not None:
            (part / "resume").mkdir()
            torch.save(dict(resume), part / "resume" / "state.pt")
            if buffer is not None:
                buffer.save(part / "resume" / "buffer")
        manifest = _manifest(config, env, train_iter, envstep)
        (part / "manifest.json").write_text(json.dumps(manifest, indent=1))
        for entry in list(part.iterdir()):
            target = folder / entry.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(entry, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_evaluated(folder: Path, snapshot: Snapshot, result: EvalResult) -> None:
    folder.mkdir()
    weights = {}
    for name, array in snapshot.model_state.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NonFiniteError(f"weight {name}", "the checkpoint was not written")
        weights[name] = torch.from_numpy(np.array(array))
    torch.save(weights, folder / "weights.pt")
    (folder / "score.json").write_text(json.dumps(dataclasses.asdict(result), indent=1))


def _manifest(config: Config, env: EnvSpec, train_iter: int, envstep: int) -> dict[str, Any]:
    data = config_to_json(config)
    text = json.dumps(data, sort_keys=True)
    return {
        "format": FORMAT,
        "policy_type": config.policy.type,
        "env_id": env.env_id,
        "env_spec": dataclasses.asdict(env),
        "config": data,
        "config_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "train_iter": train_iter,
        "envstep": envstep,
        "versions": {
            "zero_tune": zero_tune.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def config_to_json(config: Config) -> dict[str, Any]:
    """The config as JSON values; a callable environment becomes ``module:name``."""
    data = config.to_dict()
    env_id = data["env"]["env_id"]
    if not isinstance(env_id, str):
        data["env"]["env_id"] = f"{env_id.__module__}:{getattr(env_id, '__qualname__', env_id)}"
    plain: dict[str, Any] = json.loads(json.dumps(data, default=str))
    return plain


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises:
        SnapshotMismatch: there is no checkpoint, or it has another format.
    """
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise SnapshotMismatch(f"no checkpoint at {folder}: manifest.json is missing")
    manifest: dict[str, Any] = json.loads(path.read_text())
    if manifest.get("format") != FORMAT:
        raise SnapshotMismatch(
            f"checkpoint {folder} has format {manifest.get('format')}, this version reads {FORMAT}"
        )
    return manifest


def check_policy_type(manifest: Mapping[str, Any], policy_type: str) -> None:
    """Raise unless the checkpoint holds that policy type.

    Raises:
        SnapshotMismatch: naming both.
    """
    if manifest["policy_type"] != policy_type:
        raise SnapshotMismatch(
            f"the checkpoint holds a {manifest['policy_type']!r} agent, not {policy_type!r}"
        )


def read_evaluated(folder: str | Path) -> tuple[Snapshot, EvalResult] | None:
    """The evaluated snapshot and its score, None if the checkpoint has none."""
    path = Path(folder) / "evaluated"
    if not (path / "weights.pt").is_file():
        return None
    weights = torch.load(path / "weights.pt", weights_only=True, map_location="cpu")
    data = json.loads((path / "score.json").read_text())
    for name in ("episode_returns", "episode_lengths", "seeds"):
        data[name] = tuple(data[name])
    result = EvalResult(**data)
    state = {name: tensor.numpy() for name, tensor in strip_prefixes(weights).items()}
    return Snapshot(result.policy_version, result.envstep, state), result


def read_resume(folder: str | Path) -> dict[str, Any]:
    """The driver's state.

    Raises:
        SnapshotMismatch: the checkpoint was written without one.
    """
    path = Path(folder) / "resume" / "state.pt"
    if not path.is_file():
        raise SnapshotMismatch(
            f"checkpoint {folder} cannot be resumed: it was written with checkpoint.resume_state='never'"
        )
    state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return state


def buffer_folder(folder: str | Path) -> Path | None:
    """Where the replay buffer is, if the checkpoint has it."""
    path = Path(folder) / "resume" / "buffer"
    return path if path.is_dir() else None


def strip_prefixes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights without the name prefixes that wrappers of a model add."""
    out = {}
    for name, value in state.items():
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        out[name] = value
    return out
