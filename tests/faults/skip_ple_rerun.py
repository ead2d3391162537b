"""A rerun advances the recurrence and forgets the PLE before it."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from reference_models.hybrid import LinearLayer
from tests.faults.fault import Fault, one_reject


def _apply(patch: pytest.MonkeyPatch) -> None:
    advance = LinearLayer.advance

    def faulty(self: LinearLayer, x: mx.array, tokens: mx.array, cache: ArraysCache) -> None:
        ple, self.ple = self.ple, None
        try:
            advance(self, x, tokens, cache)
        finally:
            self.ple = ple

    patch.setattr(LinearLayer, "advance", faulty)


FAULT = Fault(
    id="skip-ple-rerun",
    breaks=frozenset(("layers.1", c) for c in ("ngram", "ple_conv", "conv", "recurrent")),
    cells=(one_reject("ple", "rerun"), one_reject("flash-next", "rerun")),
    apply=_apply,
)
