"""Checkpoint directories: whole, exact, and refused when they do not fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.replay.segments import VECTOR
from zero_tune import checkpoint
from zero_tune.config import Config
from zero_tune.errors import NonFiniteError, SnapshotMismatch
from zero_tune.presets import resolve
from zero_tune.types import EvalResult, Snapshot

CONFIG, ENV = resolve({}, VECTOR)
RESULT = EvalResult(
    policy_version=7,
    train_iter=7,
    envstep=123,
    reward_mean=0.1 + 0.2,
    reward_std=1 / 3,
    episode_returns=(0.1, 0.5000000000000001),
    episode_lengths=(3, 4),
    seeds=(100_000, 100_001),
    stop=False,
    seconds=0.25,
    num_truncated=1,
)


def snapshot(**weights: Any) -> Snapshot:
    state = {"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array(5)}
    return Snapshot(7, 123, state | weights)


def resume(weight: float = 1.0) -> dict[str, Any]:
    model = {"layer.weight": torch.full((2, 3), weight)}
    return {"learner": {"model": model, "target": dict(model)}, "counters": {"envstep": 200}}


def write(folder: Path, config: Config = CONFIG, **changes: Any) -> None:
    given: dict[str, Any] = {
        "snapshot": snapshot(),
        "result": RESULT,
        "resume": resume(),
        "train_iter": 9,
        "envstep": 200,
    }
    checkpoint.write_checkpoint(folder, config, ENV, **(given | changes))


def test_what_was_evaluated_comes_back_exactly(tmp_path: Path) -> None:
    write(tmp_path)
    manifest, weights, result = checkpoint.read_evaluated(tmp_path)
    assert result == RESULT
    assert {f.name for f in dataclasses.fields(EvalResult)} == set(
        json.loads((tmp_path / "evaluated" / "score.json").read_text())
    )
    np.testing.assert_equal(weights, dict(snapshot().model_state))
    assert all(weights[k].dtype == v.dtype for k, v in snapshot().model_state.items())
    assert manifest["train_iter"] == 9 and manifest["envstep"] == 200
    assert manifest["policy_type"] == "muzero" and manifest["env_id"] == "scripted"
    assert resolve(manifest["config"], VECTOR)[0] == CONFIG
    state = checkpoint.read_resume(tmp_path)
    assert state["counters"] == {"envstep": 200}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evaluated", "manifest.json", "resume"]


def test_a_callable_environment_is_named(tmp_path: Path) -> None:
    env = dataclasses.replace(CONFIG.env, env_id=write)
    write(tmp_path, dataclasses.replace(CONFIG, env=env))
    manifest = checkpoint.read_manifest(tmp_path)
    assert manifest["config"]["env"]["env_id"] == "tests.test_checkpoint:write"


@pytest.mark.parametrize(
    "bad",
    [
        {"snapshot": snapshot(**{"layer.bias": np.array([np.nan], np.float32)})},
        {"resume": resume(float("inf"))},
    ],
)
def test_non_finite_weights_are_refused_and_the_old_checkpoint_stays(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    write(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(NonFiniteError, match="weight layer"):
        write(tmp_path, **bad)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_write_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError):
        write(tmp_path, resume=resume(float("nan")))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SnapshotMismatch, match="no checkpoint at"):
        checkpoint.read_manifest(tmp_path)


def test_saved_before_the_first_score(tmp_path: Path) -> None:
    write(tmp_path, snapshot=None, result=None)
    assert not checkpoint.has_evaluated(tmp_path)
    assert checkpoint.read_resume(tmp_path)
    with pytest.raises(SnapshotMismatch, match="before any evaluation"):
        checkpoint.read_evaluated(tmp_path)


def test_saved_without_resume_state(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, resume=None)  # replaces the older one, whose state does not linger
    with pytest.raises(SnapshotMismatch, match="resume_state"):
        checkpoint.read_resume(tmp_path)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(SnapshotMismatch, match="'muzero' agent, not 'unizero'"):
        checkpoint.check_policy_type(checkpoint.read_manifest(tmp_path), "unizero")
    model = {"a": torch.zeros(2), "b": torch.zeros(2)}
    with pytest.raises(
        SnapshotMismatch, match=r"b is missing; c is not .*; a has shape \(3,\), .*"
    ):
        checkpoint.check_weights(model, {"a": torch.zeros(3), "c": torch.zeros(1)})
    checkpoint.check_weights(model, dict(model))


def test_other_formats_and_damaged_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    weights = tmp_path / "evaluated" / "weights.pt"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(SnapshotMismatch, match="cannot be read"):
        checkpoint.read_evaluated(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(SnapshotMismatch, match="format 99"):
        checkpoint.read_manifest(tmp_path)


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    torch.save({"learner": Path("x")}, tmp_path / "resume" / "state.pt")
    with pytest.raises(SnapshotMismatch, match="cannot be read"):
        checkpoint.read_resume(tmp_path)


def test_wrapper_prefixes_are_stripped(tmp_path: Path) -> None:
    names = {"_orig_mod.module.layer.weight": np.ones(2, np.float32)}
    write(tmp_path, snapshot=Snapshot(7, 123, names))
    _, weights, _ = checkpoint.read_evaluated(tmp_path)
    assert list(weights) == ["layer.weight"]
