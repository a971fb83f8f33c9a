"""The command line where it uses Ray."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import descendants
from tests.tune.small import SMALL, gone
from zero_tune.cli import main
from zero_tune.parsing import merge

pytestmark = pytest.mark.ray


def settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A nested dict as words after ``--set``."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={value}"


@pytest.mark.usefixtures("cluster")
def test_a_search_ends_with_its_best_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "--num-samples", "2", "--storage-path", str(tmp_path), "--max-env-step", "60"]
    assert main([*words, "--set", *settings(SMALL)]) == 0
    said = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines() if " " in line)
    assert "learning_rate" in said["hyperparameters"]
    assert Path(said["learning"].removeprefix("curves ")).read_bytes().startswith(b"\x89PNG")
    assert main(["eval", said["checkpoint"]]) == 0
    best = float(said["best"].removeprefix("score "))
    again = re.search(r"mean (-?[\d.]+)", capsys.readouterr().out)
    assert again and float(again[1]) == pytest.approx(best, abs=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_failed_trial_is_told_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = merge(
        SMALL, {"env": {"env_id": "tests.tune.small:Faulty-v0", "kwargs.fault": "raise"}}
    )
    words = ["tune", "--num-samples", "1", "--storage-path", str(tmp_path), "--set"]
    assert main([*words, *settings(config)]) == 1
    out, err = capsys.readouterr()
    told = re.search(r"failed: ValueError: the simulator crashed \(traceback: (.*)\)", err)
    assert told and "ValueError: the simulator crashed" in Path(told[1]).read_text()
    assert "FAILED" in out and "\u2502" not in out  # our table, and not Ray's dump of every metric


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    words = ["train", "--async-pipeline", "--exp-name", str(tmp_path / "run")]
    command = [sys.executable, "-m", "zero_tune", *words, "--set", *settings(SMALL)]
    run = subprocess.Popen(
        [*command, "policy.max_env_step=1000000"], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    while "env steps" not in (line := run.stdout.readline()):
        assert line, "it ended before its first iteration"
    started = descendants(run.pid)
    assert len(started) > 2
    os.kill(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    gone(started)
