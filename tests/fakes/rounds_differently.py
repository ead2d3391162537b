"""Its verify pass rounds otherwise than its one-token steps: right, and not row-exact.

One layer's output is scaled by a hair whenever several rows come at once, as another kernel
would round it. Optionally with a real rollback fault behind it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession, load_model, session_of
from mtp_conformance.protocol import Description, Options

_HAIR = 1 + 2.0**-8


class OtherKernel:
    """A layer that rounds a block of rows differently."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.make_cache, self.mlp = layer.make_cache, layer.mlp

    def __call__(self, x: mx.array, tokens: mx.array, cache: Any) -> mx.array:
        """Run the layer; scale its output by a hair unless there is one row."""
        out = self._layer(x, tokens, cache)
        return out if x.shape[1] == 1 else (out.astype(mx.float32) * _HAIR).astype(out.dtype)


class RoundsDifferently(BuiltinRuntime):
    """The builtin runtime with another kernel for more than one row, in one layer."""

    layer = 2

    def describe(self) -> Description:
        """As the builtin runtime, for the reference classes alone."""
        card = super().describe()
        return replace(card, models=tuple(name for name in card.models if "+" not in name))

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime, prefilled one token a pass so that a prompt is no block."""
        target, head = load_model(model, checkpoint)
        target = with_kernel(target, self.layer)
        options = replace(options, prefill_step_size=1)
        return BuiltinSession(session_of(target, head, options), target, head, options, checkpoint)


def with_kernel(target: Any, layer: int) -> Any:
    """A target with another kernel in one layer."""
    twin = object.__new__(type(target))
    vars(twin).update(vars(target))
    twin.layers = list(target.layers)
    twin.layers[layer] = OtherKernel(target.layers[layer])
    return twin


def make_runtime() -> RoundsDifferently:
    """The factory for a whole run."""
    return RoundsDifferently()
