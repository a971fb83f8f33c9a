"""Shape checks for the places where data enters a component."""

from __future__ import annotations

from typing import Any


def check_shape(name: str, value: Any, expected: tuple[int | None, ...]) -> None:
    """Raise if ``value.shape`` differs from ``expected`` (``None`` matches any size).

    Raises:
        ValueError: naming the array, the shape expected and the one received.
    """
    shape = tuple(value.shape)
    same = len(shape) == len(expected) and all(
        want is None or got == want for got, want in zip(shape, expected, strict=True)
    )
    if not same:
        raise ValueError(f"{name} must have shape {expected}, got {shape}")
