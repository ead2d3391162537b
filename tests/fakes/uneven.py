"""Models on which a call of several rows has other low bits than the rows one by one, as on a GPU.

The CPU backend rounds alike for any number of rows. With these models it does not, so that what a
GPU does to decoder and suite can be tried without one: `--runtime tests.fakes.uneven:make_runtime`,
or `...:make_runtime_of_few` for one on which most values are the same all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.adapters.builtin import (
    BuiltinRuntime,
    BuiltinSession,
    load_experts,
    load_model,
    session_of,
)
from mtp_conformance.protocol import Description, Options
from mtp_decoder.target import PooledLayer, RecurrentLayer
from reference_models.zoo import ZOO

_APART = {mx.float32: 2.0**-21, mx.bfloat16: 2.0**-7}
"""How far apart: a few units in the last place."""
_BITS = {mx.float32: mx.uint32, mx.bfloat16: mx.uint16}
_FEW = range(2, 6)

Rounding = Callable[[mx.array], mx.array]


def every_value(x: mx.array) -> mx.array:
    """The same rows, with other low bits if there are several."""
    several = x.shape[1] > 1 and x.dtype in _APART
    return x * (1 + _APART[x.dtype]) if several else x


def few_values(x: mx.array) -> mx.array:
    """The same rows, where there are two to five with other low bits of one value in 512.

    As a kernel for few rows that adds up in another order: most sums round to the same.
    """
    if x.shape[1] not in _FEW or x.dtype not in _APART:
        return x
    mixed = x.view(_BITS[x.dtype]).astype(mx.uint32) * 2654435761
    return mx.where(mixed >> 23 == 0, x * (1 + _APART[x.dtype]), x)


class _Uneven:
    """A layer, or a whole target, that rounds several rows otherwise than one."""

    def __init__(self, inner: Any, rounding: Rounding) -> None:
        self.inner = inner
        self.rounding = rounding

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        return self.rounding(self.inner(self.rounding(x), tokens, cache))


class _UnevenRecurrent(_Uneven):
    def __init__(self, inner: Any, rounding: Rounding) -> None:
        super().__init__(inner, rounding)
        self.slots = inner.slots  # what a protocol looks for has to be there

    def record(self, x: mx.array, tokens: mx.array, cache: Any, states: Any = None) -> Any:
        out, tape = self.inner.record(self.rounding(x), tokens, cache, states)
        return self.rounding(out), {name: self.rounding(rows) for name, rows in tape.items()}

    def advance(self, x: mx.array, tokens: mx.array, cache: Any) -> None:
        self.inner.advance(self.rounding(x), tokens, cache)

    def advance_tape(self, tape: Any, tokens: mx.array, cache: Any) -> None:
        rows = {name: self.rounding(part) for name, part in tape.items()}
        self.inner.advance_tape(rows, tokens, cache)


class _UnevenPooled(_Uneven):
    def __init__(self, inner: Any, rounding: Rounding) -> None:
        super().__init__(inner, rounding)
        self.pooled_ratio = inner.pooled_ratio


class UnevenTarget(_Uneven):
    """A target of such layers, whose output projection is uneven too."""

    def __init__(self, target: Any, rounding: Rounding) -> None:
        super().__init__(target, rounding)
        self.layers = [_uneven_layer(layer, rounding) for layer in target.layers]

    def logits(self, hidden: mx.array) -> mx.array:
        """As the target's, uneven."""
        return self.rounding(self.inner.logits(self.rounding(hidden)))


class UnevenHead(UnevenTarget):
    """Likewise a head."""

    def __call__(self, hidden: mx.array, tokens: mx.array, cache: Any) -> Any:
        """As the head, uneven."""
        logits, after = self.inner(self.rounding(hidden), tokens, cache)
        return self.rounding(logits), self.rounding(after)


def _uneven_layer(layer: Any, rounding: Rounding) -> Any:
    if isinstance(layer, RecurrentLayer):
        return _UnevenRecurrent(layer, rounding)
    if isinstance(layer, PooledLayer):
        return _UnevenPooled(layer, rounding)
    return _Uneven(layer, rounding)


def uneven(pair: Any, rounding: Rounding = every_value) -> tuple[Any, Any]:
    """A target and its head, uneven."""
    return UnevenTarget(pair[0], rounding), UnevenHead(pair[1], rounding)


class UnevenRuntime(BuiltinRuntime):
    """The builtin decoder over such models."""

    def __init__(self, rounding: Rounding = every_value) -> None:
        self.rounding = rounding

    def describe(self) -> Description:
        """The builtin decoder's card."""
        return replace(super().describe(), name="uneven", models=tuple(ZOO))

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A session over an uneven target and head."""
        if options.expert_budget or options.group_experts:
            pair = uneven(load_experts(model, checkpoint, options), self.rounding)
        else:
            pair = uneven(load_model(model, checkpoint), self.rounding)
        return BuiltinSession(session_of(*pair, options), *pair, options, checkpoint)


def make_runtime() -> UnevenRuntime:
    """The factory the command line names."""
    return UnevenRuntime()


def make_runtime_of_few() -> UnevenRuntime:
    """Likewise, where but few values of narrow passes round otherwise."""
    return UnevenRuntime(few_values)
