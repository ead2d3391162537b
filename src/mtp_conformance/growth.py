"""What one more token does to a state: rows are added or move up, the recurrence changes.

A state that is shown must be the live one, in the order the canonical layout names. This can be
told without any expected value: rows stay what they were when a token is added after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import mlx.core as mx

from mtp_conformance.exactness import bits_equal

_ADDED = {"keys": 2, "values": 2, "index_keys": 2, "pooled": 1, "open_block": 2}
"""Components with a row a token or a block, and along which axis."""
_SHIFTED = ("conv", "ngram", "ple_conv")
"""Windows of the last rows, axis 1, the newest last."""


def growth_faults(
    before: Mapping[str, mx.array], after: Mapping[str, mx.array], tokens: int
) -> list[str]:
    """Say what is wrong with two states one plain step apart; empty if nothing is.

    Args:
        before: state with `tokens` - 1 tokens in the target's caches.
        after: state of the same session one token later.
        tokens: tokens in the target's caches by then.
    """
    found: list[str] = []
    for name, now in after.items():
        prefix, _, component = name.rpartition(".")
        if component == "offset" and prefix.startswith("layers.") and now.item() != tokens:
            found.append(f"{name} is {now.item()} with {tokens} tokens in the caches")
        check = _CHECKS.get(component)
        if check is not None and name in before and now.ndim > 1:
            wrong = check(before[name], now)
            if wrong:
                found.append(f"{name} {wrong}")
    return found


def _adds(axis: int) -> Callable[[mx.array, mx.array], str]:
    def check(before: mx.array, after: mx.array) -> str:
        had, has = before.shape[axis], after.shape[axis]
        if has < had:
            return ""  # a block was completed
        if has == had and axis == _ADDED["keys"] and bits_equal(before, after) is not None:
            return (
                "" if _same(_cut(before, 1, had, axis), _cut(after, 0, has - 1, axis)) else _ORDER
            )
        return "" if _same(before, _cut(after, 0, had, axis)) else _ORDER

    return check


def _shifts(before: mx.array, after: mx.array) -> str:
    size = before.shape[1]
    moved = _same(_cut(before, 1, size, 1), _cut(after, 0, size - 1, 1))
    return "" if moved else "is not the last rows, moved up by one with the newest at the end"


def _recurs(before: mx.array, after: mx.array) -> str:
    if not after.any().item():
        return "is all zeros after a token"
    return "" if bits_equal(before, after) is not None else "is unchanged by a token"


def _cut(array: mx.array, start: int, stop: int, axis: int) -> mx.array:
    return mx.take(array, mx.arange(start, stop), axis=axis)


def _same(one: mx.array, other: mx.array) -> bool:
    return cast("object", bits_equal(one, other)) is None


_ORDER = "is not its earlier rows with newer ones after them; give rows oldest first"
_CHECKS: Mapping[str, Callable[[mx.array, mx.array], str]] = {
    **{name: _adds(axis) for name, axis in _ADDED.items()},
    **dict.fromkeys(_SHIFTED, _shifts),
    "recurrent": _recurs,
}
