"""Comparing emitted tokens."""

from __future__ import annotations

from collections.abc import Sequence


def require_tokens(
    actual: Sequence[int], expected: Sequence[int], *, what: str, where: str = ""
) -> int:
    """Demand equal tokens; returns how many were compared.

    Raises:
        AssertionError: names the first index that differs and both tokens.
    """
    for index, (token, wanted) in enumerate(zip(actual, expected, strict=False)):
        assert token == wanted, f"{where}emitted token {index} is {token}, {what} emits {wanted}"
    assert len(actual) == len(expected), (
        f"{where}emitted {len(actual)} tokens, {what} emits {len(expected)}"
    )
    assert expected, f"{where}no token was compared"
    return len(expected)
