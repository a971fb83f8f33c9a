"""The package's exceptions: each names what was wrong and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ZeroTuneError(Exception):
    """Base class of every error this package raises on purpose."""


class ConfigError(ZeroTuneError, ValueError):
    """A setting is unknown, out of range, or contradicts the environment.

    Raised at construction, before any actor starts. The text always holds the dotted key, the rule,
    the value received and a remedy.
    """

    def __init__(self, key: str, rule: str, value: object = None, remedy: str = "") -> None:
        self.key, self.rule, self.value, self.remedy = key, rule, value, remedy
        text = f"{key}: {rule}; got {value!r}"
        super().__init__(f"{text}. {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, object, str]]:
        return type(self), (self.key, self.rule, self.value, self.remedy)


class EnvError(ZeroTuneError, RuntimeError):
    """An environment broke its contract at run time: a bad action, observation, reward or API."""


class NonFiniteError(ZeroTuneError, ArithmeticError):
    """A loss, gradient, target, weight, reward or observation is NaN or infinite.

    Args:
        quantity: name of the first bad quantity, for example ``loss/value``.
    """

    def __init__(self, quantity: str, detail: str = "") -> None:
        self.quantity, self.detail = quantity, detail
        super().__init__(f"non-finite {quantity}" + (f": {detail}" if detail else ""))

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[str, str]]:
        return type(self), (self.quantity, self.detail)


class SnapshotMismatch(ZeroTuneError, ValueError):
    """A checkpoint or snapshot does not fit the model, policy type or environment it is loaded into."""


class ResourceError(ZeroTuneError, RuntimeError):
    """The cluster can never place the trial's bundles, or an actor did not start in time."""


class WorkerFailed(ZeroTuneError, RuntimeError):
    """A worker was lost more often than ``max_actor_restarts`` allows.

    Never derives from a Ray exception: those make Tune skip ``cleanup()``.
    """


def nearest(name: str, choices: Iterable[str]) -> str:
    """The choice closest to ``name`` as a remedy sentence, or an empty string if none is close."""
    match = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f"Did you mean {match[0]!r}?" if match else ""
