"""Nested mappings into frozen dataclasses: types, ranges, and what a misspelt key was meant to be."""

from __future__ import annotations

import dataclasses
import operator
import types as pytypes
import typing
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from zero_tune.errors import ConfigError, nearest


def key(
    default: Any,
    doc: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    choices: tuple[Any, ...] | None = None,
) -> Any:
    """A documented config field with its admissible range."""
    meta = {"doc": doc, "ge": ge, "gt": gt, "le": le, "choices": choices}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=meta)
    return field(default=default, metadata=meta)


def parse(
    cls: type[Any], data: Mapping[str, Any], prefix: str = "", root: type[Any] | None = None
) -> Any:
    """Build dataclass ``cls`` from ``data``.

    Args:
        cls: a dataclass whose fields are made by ``key`` or are dataclasses themselves.
        data: nested mapping.
        prefix: dotted path of ``data``, for messages; ends in a dot unless empty.
        root: the outermost dataclass, where a misplaced key may belong.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or range.
    """
    root = root or cls
    if not isinstance(data, Mapping):
        raise ConfigError(prefix.rstrip(".") or "config", "must be a mapping", data)
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        dotted = f"{prefix}{name}"
        if name not in known:
            raise ConfigError(dotted, "unknown key", value, _remedy(str(name), known, prefix, root))
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            values[name] = parse(typing.cast("type[Any]", hint), value, f"{dotted}.", root)
        else:
            values[name] = _check(dotted, value, hint, known[name].metadata)
    return cls(**values)


def _remedy(name: str, known: Mapping[str, Any], prefix: str, root: type[Any]) -> str:
    everywhere = all_keys(root)
    elsewhere = [p for p in everywhere if p.split(".")[-1] == name]
    if elsewhere:
        return f"It belongs at {elsewhere[0]!r}."
    close = nearest(name, known)
    if close:
        return close
    close = nearest(f"{prefix}{name}", everywhere)
    return close or f"Keys here: {', '.join(sorted(known))}."


def all_keys(cls: type[Any], prefix: str = "") -> list[str]:
    """Every dotted key, leaves only."""
    out: list[str] = []
    hints = typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        hint = hints[f.name]
        if dataclasses.is_dataclass(hint):
            out += all_keys(typing.cast("type[Any]", hint), f"{prefix}{f.name}.")
        else:
            out.append(prefix + f.name)
    return out


def _check(dotted: str, value: Any, hint: Any, meta: Mapping[str, Any]) -> Any:
    value = _coerce(dotted, value, hint)
    if value is None:
        return None
    choices = meta.get("choices")
    if choices is not None and value not in choices:
        listed = ", ".join(repr(c) for c in choices)
        raise ConfigError(
            dotted, f"must be one of {listed}", value, nearest(str(value), map(str, choices))
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if value != value:
        raise ConfigError(dotted, "must be a number", value, "Replace the NaN.")
    for name, sign, ok in (
        ("ge", ">=", operator.ge),
        ("gt", ">", operator.gt),
        ("le", "<=", operator.le),
    ):
        bound = meta.get(name)
        if bound is not None and not ok(value, bound):
            raise ConfigError(
                dotted, f"must be {sign} {bound}", value, f"Set a value {sign} {bound}."
            )
    return value


def _coerce(dotted: str, value: Any, hint: Any) -> Any:
    """``value`` as the annotated type where that loses nothing, else a ConfigError."""
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    if value is None and type(None) in options:
        return None
    if hasattr(value, "item") and not isinstance(value, str) and getattr(value, "ndim", 0) == 0:
        value = value.item()  # a numpy scalar from a search space
    for option in options:
        done, result = _coerce_to(dotted, value, option)
        if done:
            return result
    names = " or ".join(getattr(o, "__name__", str(o)) for o in options if o is not type(None))
    raise ConfigError(dotted, f"must be {names}", value, f"Pass a value of type {names}.")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, pytypes.UnionType)


def _coerce_to(dotted: str, value: Any, option: Any) -> tuple[bool, Any]:
    origin = typing.get_origin(option)
    if option is bool:
        return isinstance(value, bool), value
    if option is int:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return (whole and not isinstance(value, bool)), int(value) if whole else None
    if option is float:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        return good, float(value) if good else None
    if option is str:
        return isinstance(value, str), value
    if origin is dict:
        return isinstance(value, Mapping), dict(value) if isinstance(value, Mapping) else None
    if origin is tuple:
        return _coerce_tuple(dotted, value, typing.get_args(option))
    if origin is not None and callable(value) and not isinstance(value, str):
        return True, value
    return False, None


def _coerce_tuple(dotted: str, value: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    if isinstance(value, int) and not isinstance(value, bool) and args[-1] is Ellipsis:
        value = (value,)
    if not isinstance(value, list | tuple):
        return False, None
    if args[-1] is Ellipsis:
        kinds = (args[0],) * len(value)
    elif len(args) != len(value):
        raise ConfigError(dotted, f"must have {len(args)} entries", value)
    else:
        kinds = args
    return True, tuple(_coerce(dotted, v, k) for v, k in zip(value, kinds, strict=True))


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on top, nested mappings merged; neither argument is changed."""
    out = dict(base)
    for name, value in over.items():
        deep = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merge(out[name], value) if deep else value
    return out


def set_path(data: dict[str, Any], dotted: str, value: Any) -> None:
    """Set ``data["a"]["b"] = value`` for ``dotted == "a.b"``, creating groups on the way."""
    *groups, last = dotted.split(".")
    for group in groups:
        data = data.setdefault(group, {})
    data[last] = value


def get_path(data: Mapping[str, Any], dotted: str, default: Any = None) -> Any:
    """The value at a dotted path of a nested dict, or ``default``."""
    node: Any = data
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node
