"""The command line: ``zero-tune train | tune | eval``."""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zero_tune.errors import ConfigError, ZeroTuneError
from zero_tune.parsing import set_path


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 2 after an error that was explained."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        return code
    except ZeroTuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zero-tune", description=__doc__)
    commands = parser.add_subparsers(required=True)
    train = commands.add_parser("train", help="train one agent")
    _common(train)
    train.add_argument(
        "--async-pipeline", action="store_true", help="collect and evaluate in Ray actors"
    )
    train.add_argument("--exp-name", help="output folder (checkpoints go to EXP_NAME/ckpt)")
    train.set_defaults(run=run_train)
    tune = commands.add_parser("tune", help="search hyperparameters with Ray Tune")
    _common(tune)
    tune.add_argument(
        "--async-pipeline", action="store_true", help="collect and evaluate in Ray actors"
    )
    tune.add_argument(
        "--search-space", default=None, help="module:NAME (default: the policy family's)"
    )
    tune.add_argument("--num-samples", type=int, default=4)
    tune.add_argument("--scheduler", choices=("asha", "none"), default="asha")
    tune.add_argument("--search", choices=("optuna", "random"), default="optuna")
    tune.add_argument("--num-cpus", type=int, default=None, help="logical CPUs for a local Ray")
    tune.add_argument("--time-budget-s", type=float, default=None)
    tune.add_argument("--name", default=None, help="experiment name")
    tune.add_argument("--storage-path", default="results", help="where results go")
    tune.set_defaults(run=run_tune)
    evaluate = commands.add_parser("eval", help="repeat a checkpoint's evaluation")
    evaluate.add_argument("checkpoint", type=Path)
    evaluate.add_argument("--episodes", type=int, default=None, help="other seeds, so many of them")
    evaluate.set_defaults(run=run_eval)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", default="CartPole-v1", help="gymnasium id or module:id")
    parser.add_argument("--policy", default="muzero", help="one of the ten policy types")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=None)
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="any config key, dotted",
    )


def user_config(args: argparse.Namespace) -> dict[str, Any]:
    """The nested dict that the options describe."""
    config: dict[str, Any] = {"env": {"env_id": args.env}, "policy": {"type": args.policy}}
    config["seed"] = args.seed
    set_path(config, "policy.async_pipeline.enabled", bool(args.async_pipeline))
    if args.max_env_step is not None:
        set_path(config, "policy.max_env_step", args.max_env_step)
    for item in args.set:
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(
                "--set", "must be KEY=VALUE", item, "For example --set policy.batch_size=64."
            )
        set_path(config, name, _literal(text))
    return config


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def run_train(args: argparse.Namespace) -> int:
    """``train``: one agent, a progress line per iteration."""
    from zero_tune.entry import train

    config = user_config(args)
    if args.exp_name:
        config["exp_name"] = args.exp_name
    start = time.monotonic()

    def show(report: dict[str, Any]) -> None:
        print(progress_line(report, time.monotonic() - start), flush=True)

    result = train(config, on_report=show)
    print(f"best score {result.best_score:.2f}, checkpoint {result.best_checkpoint}")
    return 0


def progress_line(report: dict[str, Any], seconds: float) -> str:
    """One iteration in one line."""
    fresh = "*" if report["evaluation/is_new"] else " "
    return (
        f"{seconds:7.1f}s  env steps {report['num_env_steps_sampled_lifetime']:>8} "
        f"({report['env_runners/env_steps_per_s']:6.1f}/s)  "
        f"updates {report['learners/train_iter']:>7} ({report['learners/updates_per_s']:6.1f}/s)  "
        f"loss {report['learners/total_loss']:7.3f}  "
        f"lag {report['async/arrival_lag']:5.1f}  "
        f"return {report['env_runners/episode_return_mean']:8.2f}  "
        f"score {report['evaluation/episode_return_mean']:8.2f}{fresh}"
    )


def run_eval(args: argparse.Namespace) -> int:
    """``eval``: the stored seeds must give the stored score to the last bit."""
    from zero_tune.loading import load_policy

    policy = load_policy(args.checkpoint)
    seeds = None
    if args.episodes is not None:
        seeds = tuple(range(1_000_000, 1_000_000 + args.episodes))
    result = policy.evaluate(seeds)
    low, high = min(result.episode_returns), max(result.episode_returns)
    print(
        f"{policy.config.policy.type} on {policy.env.env_id}: mean {result.reward_mean!r}, "
        f"std {result.reward_std:.3f}, min {low:g}, max {high:g}, {len(result.seeds)} episodes"
    )
    if seeds is not None:
        return 0
    same = result.episode_returns == policy.score.episode_returns
    print(
        f"stored score {policy.score.reward_mean!r}: {'repeated exactly' if same else 'NOT repeated'}"
    )
    return 0 if same else 1


def run_tune(args: argparse.Namespace) -> int:
    """``tune``: a search; ends with the best evaluated checkpoint and a learning-curve PNG."""
    from zero_tune.tune.search import SearchRequest, run_search

    request = SearchRequest(
        config=user_config(args),
        search_space=args.search_space,
        num_samples=args.num_samples,
        scheduler=args.scheduler,
        search=args.search,
        num_cpus=args.num_cpus,
        time_budget_s=args.time_budget_s,
        name=args.name,
        storage_path=str(Path(args.storage_path).resolve()),
        seed=args.seed,
    )
    outcome = run_search(request)
    for folder, reason in outcome.failures.items():
        print(f"failed: {reason} (traceback: {folder}/error.txt)", file=sys.stderr)
    if outcome.best is None:
        print("no trial was evaluated", file=sys.stderr)
        return 1
    print(f"best score {outcome.best.score:.2f}")
    print(f"checkpoint {outcome.best.path}")
    print(f"hyperparameters {json.dumps(outcome.varied, default=str)}")
    if outcome.plot is not None:
        print(f"learning curves {outcome.plot}")
    print(f"check it with: python -m zero_tune eval {outcome.best.path}")
    return 1 if outcome.failures else 0
