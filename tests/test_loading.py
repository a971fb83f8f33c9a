"""Checkpoints as agents, without Ray."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.contract.rows import config_for
from zero_tune import checkpoint
from zero_tune.entry import train
from zero_tune.errors import ConfigError, SnapshotMismatch
from zero_tune.loading import load_policy
from zero_tune.ops.threads import torch_threads
from zero_tune.parsing import merge


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    data = merge(config_for("muzero", "vector"), {"exp_name": str(folder / "x")})
    reports = []
    result = train(data, on_report=reports.append)
    return result, reports, folder


def test_a_run_leaves_its_best_and_last_snapshot_with_their_scores(run):
    result, reports, folder = run
    assert (folder / "x" / "ckpt" / "best" / "manifest.json").is_file()
    _, _, score = checkpoint.read_evaluated(folder / "x" / "ckpt" / "last")
    assert score.policy_version == 4 == reports[-1]["evaluation/snapshot_version"]
    assert score.reward_mean == reports[-1]["evaluation/episode_return_mean"]
    assert result.best_score == max(r["evaluation/episode_return_mean"] for r in reports)


def test_evaluating_a_loaded_agent_repeats_its_score_to_the_bit(run):
    result, _, _ = run
    policy = load_policy(result.best_checkpoint)
    again = policy.evaluate()
    assert again.episode_returns == policy.score.episode_returns
    assert again.reward_mean == policy.score.reward_mean == result.best_score
    assert len(policy.evaluate((1, 2)).episode_returns) == 2


def test_acting_gives_an_action_and_what_the_search_found(run):
    policy = load_policy(run[0].best_checkpoint)
    policy.reset()
    action, info = policy.act(np.zeros(4, np.float32))
    assert action.shape == (1,) and action[0] in (0, 1)
    assert info.visit_counts.sum() == 4 and abs(info.policy.sum() - 1) < 1e-6
    only = np.array([False, True])
    assert policy.act(np.zeros(4, np.float32), legal=only)[0][0] == 1
    policy.reset()
    again, _ = policy.act(np.zeros(4, np.float32))
    assert again[0] == action[0]


def test_the_command_line_repeats_a_score(run, capsys):
    from zero_tune.cli import main

    assert main(["eval", str(run[0].best_checkpoint)]) == 0
    assert "repeated exactly" in capsys.readouterr().out


@pytest.mark.parametrize(("setting", "threads"), [(None, 1), (2, 2)])
def test_a_run_keeps_to_its_threads_and_gives_them_back(setting, threads, tmp_path):
    seen = []
    over = {"exp_name": str(tmp_path), "policy": {"num_threads": setting, "max_train_iter": 1}}
    with torch_threads(3):
        train(
            merge(config_for("muzero", "vector"), over),
            on_report=lambda _: seen.append(torch.get_num_threads()),
        )
        assert torch.get_num_threads() == 3
    assert set(seen) == {threads}


def test_wrong_paths_and_endless_runs_are_errors(tmp_path):
    from zero_tune.cli import main

    with pytest.raises(SnapshotMismatch, match=r"manifest\.json"):
        load_policy(tmp_path)
    assert main(["eval", str(tmp_path)]) == 2
    data = config_for("muzero", "vector")
    data["policy"] = {**data["policy"], "max_train_iter": None}
    with pytest.raises(ConfigError, match="max_env_step"):
        train(data)


def test_the_command_line_explains_a_bad_setting(capsys):
    from zero_tune.cli import main

    assert main(["train", "--set", "policy.batch_siz=3"]) == 2
    assert "batch_size" in capsys.readouterr().err
    assert main(["train", "--set", "nonsense"]) == 2
    assert main(["train", "--policy", "muzro", "--max-env-step", "1000"]) == 2


def test_settings_may_share_one_option_or_have_one_each():
    from zero_tune.cli import _parser, user_config

    words = ["train", "--set", "policy.batch_size=3", "seed=4", "--set", "env.kwargs.L=5"]
    config = user_config(_parser().parse_args(words))
    assert config["policy"]["batch_size"] == 3 and config["seed"] == 4
    assert config["env"]["kwargs"] == {"L": 5}


def test_a_changed_score_file_would_be_noticed(run):
    policy = load_policy(run[0].best_checkpoint)
    wrong = dataclasses.replace(policy.score, episode_returns=(0.0,) * len(policy.score.seeds))
    assert policy.evaluate().episode_returns != wrong.episode_returns
