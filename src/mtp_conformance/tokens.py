"""Comparing emitted tokens."""

from __future__ import annotations

from collections.abc import Sequence


def first_difference(actual: Sequence[int], expected: Sequence[int]) -> int | None:
    """Index of the first token that differs, or where one sequence ends; None if equal."""
    pairs = enumerate(zip(actual, expected, strict=False))
    differing = (index for index, (a, b) in pairs if a != b)
    shorter = min(len(actual), len(expected))
    return next(differing, None if len(actual) == len(expected) else shorter)


class CountDiffers(AssertionError):
    """One of two streams is longer, and they are equal as far as the shorter one goes."""


def require_tokens(
    actual: Sequence[int], expected: Sequence[int], *, what: str, where: str = ""
) -> int:
    """Demand equal tokens; returns how many were compared.

    Raises:
        AssertionError: names the first index that differs and both tokens.
        CountDiffers: where no token differs.
    """
    index = first_difference(actual, expected)
    if index is not None and index < min(len(actual), len(expected)):
        raise AssertionError(
            f"{where}emitted token {index} is {actual[index]}, {what} emits {expected[index]}"
        )
    if index is not None:
        raise CountDiffers(f"{where}emitted {len(actual)} tokens, {what} emits {len(expected)}")
    if not expected:
        raise AssertionError(f"{where}no token was compared")
    return len(expected)
