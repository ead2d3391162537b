"""Models on which a call of several rows has other low bits than the rows one by one, as on a GPU.

The CPU backend rounds alike for any number of rows. With these models it does not, so that what a
GPU does to decoder and suite can be tried without one: `--runtime tests.fakes.uneven:make_runtime`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.adapters.builtin import (
    BuiltinRuntime,
    BuiltinSession,
    load_model,
    session_of,
)
from mtp_conformance.protocol import Capability, Description, Options
from mtp_decoder.target import PooledLayer, RecurrentLayer
from reference_models.zoo import ZOO

_APART = {mx.float32: 2.0**-21, mx.bfloat16: 2.0**-7}
"""How far apart: a few units in the last place."""


def _uneven(x: mx.array) -> mx.array:
    """The same rows, with other low bits if there are several."""
    several = x.shape[1] > 1 and x.dtype in _APART
    return x * (1 + _APART[x.dtype]) if several else x


class _Uneven:
    """A layer, or a whole target, that rounds several rows otherwise than one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        return _uneven(self.inner(_uneven(x), tokens, cache))


class _UnevenRecurrent(_Uneven):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.slots = inner.slots  # what a protocol looks for has to be there

    def record(self, x: mx.array, tokens: mx.array, cache: Any, states: Any = None) -> Any:
        out, tape = self.inner.record(_uneven(x), tokens, cache, states)
        return _uneven(out), {name: _uneven(rows) for name, rows in tape.items()}

    def advance(self, x: mx.array, tokens: mx.array, cache: Any) -> None:
        self.inner.advance(_uneven(x), tokens, cache)

    def advance_tape(self, tape: Any, tokens: mx.array, cache: Any) -> None:
        self.inner.advance_tape({n: _uneven(rows) for n, rows in tape.items()}, tokens, cache)


class _UnevenPooled(_Uneven):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.pooled_ratio = inner.pooled_ratio


class UnevenTarget(_Uneven):
    """A target of such layers, whose output projection is uneven too."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.layers = [_uneven_layer(layer) for layer in target.layers]

    def logits(self, hidden: mx.array) -> mx.array:
        """As the target's, uneven."""
        return _uneven(self.inner.logits(_uneven(hidden)))


class UnevenHead(UnevenTarget):
    """Likewise a head."""

    def __call__(self, hidden: mx.array, tokens: mx.array, cache: Any) -> Any:
        """As the head, uneven."""
        logits, after = self.inner(_uneven(hidden), tokens, cache)
        return _uneven(logits), _uneven(after)


def _uneven_layer(layer: Any) -> Any:
    if isinstance(layer, RecurrentLayer):
        return _UnevenRecurrent(layer)
    return _UnevenPooled(layer) if isinstance(layer, PooledLayer) else _Uneven(layer)


def uneven(pair: Any) -> tuple[Any, Any]:
    """A target and its head, uneven."""
    return UnevenTarget(pair[0]), UnevenHead(pair[1])


class UnevenRuntime(BuiltinRuntime):
    """The builtin decoder over such models."""

    def describe(self) -> Description:
        """The builtin decoder's card; experts stay in memory."""
        card = super().describe()
        offered = card.capabilities - {Capability.EXPERTS}
        return replace(card, name="uneven", models=tuple(ZOO), capabilities=offered)

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A session over an uneven target and head."""
        pair = uneven(load_model(model, checkpoint))
        return BuiltinSession(session_of(*pair, options), *pair, options, checkpoint)


def make_runtime() -> UnevenRuntime:
    """The factory the command line names."""
    return UnevenRuntime()
