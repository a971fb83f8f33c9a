"""The trainable on its own, sync, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tune.small import Faulty, assert_score_repeats, small
from zero_tune.errors import NonFiniteError, SnapshotMismatch
from zero_tune.tune.trainable import SCORE, MuZeroAsyncTrainable, MuZeroSyncTrainable

TIMES = ("timers/", "per_s", "busy", "time", "date", "pid", "duration_s", "config", "trial", "host")
KEEP_BUFFER = {"checkpoint": {"save_replay_buffer": True}}


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[MuZeroAsyncTrainable] = []

    def build(*changes: dict[str, Any]) -> MuZeroAsyncTrainable:
        made.append(MuZeroSyncTrainable(small(*changes)))
        return made[-1]

    yield build
    for trainable in made:
        trainable.stop()


def facts(row: dict[str, Any]) -> dict[str, Any]:
    """A result without clocks and names."""
    return {k: v for k, v in row.items() if not any(t in k for t in TIMES)}


def assert_same(a: Any, b: Any) -> None:
    """Equality to the bit, through nested state."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for k in a:
            assert_same(a[k], b[k])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


def test_a_trial_trains_evaluates_and_ends(make: Any) -> None:
    trainable, rows = make(), []
    while not rows or not rows[-1]["done"]:
        rows.append(trainable.train())
    first, last = rows[0], rows[-1]
    assert first["evaluation/is_new"] == 1 and first["evaluation/snapshot_version"] == 0
    assert np.isfinite([r[SCORE] for r in rows]).all()
    assert last["num_env_steps_sampled_lifetime"] >= 400
    assert last["evaluation/snapshot_version"] == last["learners/train_iter"] > 60
    assert all(r["should_checkpoint"] == bool(r["evaluation/is_new"]) for r in rows)
    assert all(set(r) == set(first) for r in rows)
    assert sum(r["timesteps_this_iter"] for r in rows) == last["timesteps_total"]
    ours = [k for k, v in trainable.step().items() if isinstance(v, int | float)]
    assert len(ours) < 100


def test_same_seed_same_rows(make: Any) -> None:
    one, two = make({"seed": 3}), make({"seed": 3})
    other = make({"seed": 4})
    rows = [[facts(t.train()) for _ in range(6)] for t in (one, two, other)]
    np.testing.assert_equal(rows[0], rows[1])
    assert rows[0] != rows[2]


def test_resume_keeps_everything(make: Any, tmp_path: Path) -> None:
    keys = {"policy": {"optim_type": "Adam", "use_priority": True}}
    one = make(KEEP_BUFFER, keys)
    while one.driver.learner.train_iter < 30:
        one.train()
    one.save(str(tmp_path))
    two = make(KEEP_BUFFER, keys, {"seed": 9})
    two.restore(str(tmp_path))
    mine, theirs = one.driver.state_dict(), two.driver.state_dict()
    assert theirs.pop("incarnation") == mine.pop("incarnation") + 1
    assert_same(mine, theirs)
    for stream in one.driver.buffer.open_streams:  # the restored run's environments are new
        one.driver.buffer.close_stream(stream)
    for _ in range(3):
        batches = [t.driver.side.batch_maker.make() for t in (one, two)]
        assert_same(batches[0].row.tolist(), batches[1].row.tolist())
        # bootstrap values were inferred in other batch sizes, hence not the same to the last bit
        torch.testing.assert_close(batches[0].targets.value, batches[1].targets.value)
        losses = [t.driver.learner.update(batches[0]) for t in (one, two)]
        assert losses[0].terms == losses[1].terms and losses[0].metrics == losses[1].metrics
    row = two.train()
    assert row["learners/train_iter"] >= 30 and row["buffer/ledger_error"] == 0


def test_resume_without_buffer_refills_and_says_so(
    make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = make()
    while one.driver.learner.train_iter < 13:
        one.train()
    one.save(str(tmp_path))
    two = make()
    two.restore(str(tmp_path))
    assert "without a replay buffer" in caplog.text
    steps = two.driver.ledger.envstep
    while two.train()["learners/train_iter"] == one.driver.learner.train_iter:
        pass
    assert two.driver.ledger.envstep >= steps + 20


def test_a_checkpoint_holds_exactly_what_was_scored(make: Any, tmp_path: Path) -> None:
    trainable = make()
    row: dict[str, Any] = {}
    while not row or row["evaluation/snapshot_version"] < 12:
        row = trainable.train()
    for _ in range(2):  # two more iterations of training must not change what is saved
        row = trainable.train()
    assert_score_repeats(trainable, row, tmp_path)


def test_a_new_learning_rate_wins_over_the_saved_one(make: Any, tmp_path: Path) -> None:
    one = make({"policy": {"learning_rate": 1e-2}})
    while one.driver.learner.train_iter < 12:
        one.train()
    one.save(str(tmp_path))
    two = make({"policy": {"learning_rate": 1e-4}})
    two.restore(str(tmp_path))
    assert [g["lr"] for g in two.driver.learner.optimizer.param_groups] == [1e-4]
    assert two.driver.learner.train_iter == one.driver.learner.train_iter
    while True:
        row = two.train()
        if row["learners/train_iter"] > one.driver.learner.train_iter:
            break
    assert row["learners/lr"] == 1e-4


def test_what_does_not_fit_is_refused(make: Any, tmp_path: Path) -> None:
    make().save(str(tmp_path))
    with pytest.raises(ValueError, match="nowhere"):
        make().restore(str(tmp_path / "nowhere"))
    with pytest.raises(SnapshotMismatch, match="'muzero' agent, not 'gumbel_muzero'"):
        make({"policy": {"type": "gumbel_muzero"}}).restore(str(tmp_path))
    other = make({"policy": {"model": {"latent_state_dim": 24}}})
    before = {k: v.clone() for k, v in other.driver.learner.model.state_dict().items()}
    with pytest.raises(SnapshotMismatch, match=r"has shape .*, this model needs"):
        other.restore(str(tmp_path))
    assert_same(before, dict(other.driver.learner.model.state_dict()))


def test_only_improvements_are_kept_if_asked_for(make: Any) -> None:
    trainable, rows = make({"checkpoint": {"keep": "improved"}}), []
    while not rows or not rows[-1]["done"]:
        rows.append(trainable.train())
    best = float("-inf")
    for row in rows:
        assert row["should_checkpoint"] == (row["evaluation/is_new"] == 1 and row[SCORE] > best)
        best = max(best, row[SCORE])


def test_reset_config_equals_a_fresh_trainable(make: Any) -> None:
    reused, fresh = make(), make({"seed": 5}, {"policy": {"type": "gumbel_muzero"}})
    reused.train()
    reused.train()
    assert reused.reset_config(small({"seed": 5}, {"policy": {"type": "gumbel_muzero"}})) is True
    for _ in range(4):
        np.testing.assert_equal(facts(reused.step()), facts(fresh.step()))


def test_cleanup_twice(make: Any) -> None:
    trainable = make()
    trainable.train()
    trainable.cleanup()
    trainable.cleanup()


@pytest.mark.parametrize(("fault", "text"), [("reward", "reward"), ("obs", "observation")])
def test_bad_numbers_fail_the_trial_by_name(make: Any, fault: str, text: str) -> None:
    trainable = make({"env": {"env_id": Faulty, "kwargs": {"fault": fault}}})
    with pytest.raises(NonFiniteError, match=f"non-finite {text}"):
        for _ in range(20):
            trainable.train()


def test_diverging_weights_fail_the_trial_and_are_never_saved(make: Any, tmp_path: Path) -> None:
    trainable = make()
    trainable.train()
    with torch.no_grad():
        next(trainable.driver.learner.model.parameters()).fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        trainable.save(str(tmp_path))
    assert not (tmp_path / "manifest.json").exists()
    with pytest.raises(NonFiniteError):
        for _ in range(5):
            trainable.train()
