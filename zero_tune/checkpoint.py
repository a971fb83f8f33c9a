"""Checkpoint directories.

    manifest.json      format, policy type, environment, versions, config, train_iter, envstep
    evaluated/         weights.pt and score.json of exactly the snapshot that was evaluated
    resume/            state.pt (learner, optimiser, counters, generators), buffer/ (optional, Arrow)

Weights and state are tensors and plain Python, loaded with ``weights_only=True``: opening a checkpoint
never runs code. The manifest is moved in last, so a directory without one is no checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import zero_tune
from zero_tune.config import Config
from zero_tune.errors import NonFiniteError, SnapshotMismatch
from zero_tune.types import Array, EnvSpec, EvalResult, Snapshot

if TYPE_CHECKING:
    from zero_tune.replay.buffer import ReplayBuffer

FORMAT = 1
_MANIFEST = "manifest.json"
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
            _write_resume(part / "resume", resume, buffer)
        manifest = _manifest(config, env, train_iter, envstep)
        (part / _MANIFEST).write_text(json.dumps(manifest, indent=1))
        _move_in(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_evaluated(folder: Path, snapshot: Snapshot, result: EvalResult) -> None:
    folder.mkdir()
    weights = {name: torch.from_numpy(np.array(a)) for name, a in snapshot.model_state.items()}
    _check_finite(weights)
    torch.save(weights, folder / "weights.pt")
    (folder / "score.json").write_text(json.dumps(dataclasses.asdict(result), indent=1))


def _write_resume(folder: Path, resume: Mapping[str, Any], buffer: ReplayBuffer | None) -> None:
    folder.mkdir()
    for part in ("model", "target"):
        _check_finite(resume["learner"][part])
    torch.save(dict(resume), folder / "state.pt")
    if buffer is not None:
        buffer.save(folder / "buffer")


def _check_finite(weights: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(f"weight {name}", "the checkpoint was not written")


def _move_in(part: Path, folder: Path) -> None:
    """Replace what ``folder`` holds by the finished parts, the manifest last."""
    (folder / _MANIFEST).unlink(missing_ok=True)
    for name in ("evaluated", "resume"):
        shutil.rmtree(folder / name, ignore_errors=True)
        if (part / name).exists():
            os.replace(part / name, folder / name)
    os.replace(part / _MANIFEST, folder / _MANIFEST)


def _manifest(config: Config, env: EnvSpec, train_iter: int, envstep: int) -> dict[str, Any]:
    data = config_to_json(config)
    text = json.dumps(data, sort_keys=True)
    return {
        "format": FORMAT,
        "policy_type": config.policy.type,
        "env_id": env.env_id,
        "env_spec": json.loads(json.dumps(dataclasses.asdict(env), default=str)),
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
    path = Path(folder) / _MANIFEST
    if not path.is_file():
        raise SnapshotMismatch(f"no checkpoint at {folder}: {_MANIFEST} is missing")
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


def check_weights(expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise unless two state dicts have the same names and shapes, so that nothing loads partly.

    Raises:
        SnapshotMismatch: naming the first few differences.
    """
    wrong = [f"{name} is missing" for name in expected if name not in given]
    wrong += [f"{name} is not part of this model" for name in given if name not in expected]
    for name, tensor in expected.items():
        if name in given and tuple(given[name].shape) != tuple(tensor.shape):
            shapes = f"{tuple(given[name].shape)}, this model needs {tuple(tensor.shape)}"
            wrong.append(f"{name} has shape {shapes}")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise SnapshotMismatch(f"weights do not fit: {'; '.join(wrong[:3])}{more}")


def has_evaluated(folder: str | Path) -> bool:
    """Whether the checkpoint holds an evaluated snapshot (one saved before the first score does not)."""
    return (Path(folder) / "evaluated" / "score.json").is_file()


def read_evaluated(folder: str | Path) -> tuple[dict[str, Any], dict[str, Array], EvalResult]:
    """The manifest, the evaluated weights and their score, every field as it was.

    Raises:
        SnapshotMismatch: there is no checkpoint, or none with an evaluated snapshot, or it is damaged.
    """
    manifest = read_manifest(folder)
    if not has_evaluated(folder):
        raise SnapshotMismatch(
            f"checkpoint {folder} was saved before any evaluation: it can be resumed, not loaded"
        )
    path = Path(folder) / "evaluated"
    weights = strip_prefixes(_load(path / "weights.pt"))
    data = json.loads((path / "score.json").read_text())
    for name in ("episode_returns", "episode_lengths", "seeds"):
        data[name] = tuple(data[name])
    state = {name: tensor.numpy() for name, tensor in weights.items()}
    return manifest, state, EvalResult(**data)


def read_resume(folder: str | Path) -> dict[str, Any]:
    """The driver's state.

    Raises:
        SnapshotMismatch: the checkpoint was written without one, or it is damaged.
    """
    path = Path(folder) / "resume" / "state.pt"
    if not path.is_file():
        raise SnapshotMismatch(
            f"checkpoint {folder} cannot be resumed: it was written with checkpoint.resume_state='never'"
        )
    state = _load(path)
    for part in ("model", "target"):
        state["learner"][part] = strip_prefixes(state["learner"][part])
    return state


def _load(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise SnapshotMismatch(f"{path} cannot be read: {error}") from error
    return state


def buffer_folder(folder: str | Path) -> Path | None:
    """Where the replay buffer is, if the checkpoint has it."""
    path = Path(folder) / "resume" / "buffer"
    return path if path.is_dir() else None


def strip_prefixes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Weights without the name prefixes that wrappers of a model add."""
    out = {}
    for name, value in state.items():
        shorter = name
        while shorter.startswith(_PREFIXES):
            shorter = shorter.split(".", 1)[1]
        out[shorter] = value
    return out
