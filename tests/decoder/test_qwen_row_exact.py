"""mlx-lm's models, exact by row while rows stay together: bits, and how products are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import base
from mlx_lm.models.switch_layers import QuantizedSwitchLinear

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import Session
from mtp_decoder.qwen import row_exact
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.qwen.target import QwenTarget, RowExactQwen
from tests.decoder.helpers import PROMPT, scripted

MODELS = ("attn", "gdn", "gdn-moe", "gdn-next")
K = 3


class _CudaTarget(QwenTarget):
    """A target that takes the form for CUDA on any device."""

    def row_exact(self) -> Any:
        """See `QwenTarget`."""
        return RowExactQwen(self)


@pytest.fixture(scope="module", params=[(m, bits) for m in MODELS for bits in (0, 4, 8)], ids=str)
def pair(request: pytest.FixtureRequest, checkpoint: Callable[..., Any]) -> tuple[Any, Any]:
    """A model of mlx-lm's classes, plain or quantised, and its head."""
    from mtp_decoder.qwen.load import load

    name, bits = request.param
    loaded: Loaded = load(checkpoint(name))
    assert loaded.head is not None
    if bits:
        for module in (loaded.target.model, loaded.head):
            nn.quantize(module, group_size=32, bits=bits, class_predicate=_divides)
    return _CudaTarget(loaded.target.model), loaded.head


def _divides(path: str, module: nn.Module) -> bool:
    del path
    return hasattr(module, "to_quantized") and module["weight"].shape[-1] % 32 == 0


@pytest.mark.parametrize("strategy", ["tape", "rerun", "snapshot", "replay"])
def test_bits_of_steps(pair: tuple[Any, Any], strategy: str) -> None:
    """Tokens, logits and every array after every accepted count are those of one-token steps."""
    steps = Session(*pair, head_rows="target")
    drafted = Session(*pair, head_rows="target", rewind=strategy, row_exact=True)
    steps.prefill(PROMPT)
    drafted.prefill(PROMPT)
    plain = steps.fork()
    for _ in range((K + 1) * (K + 2)):
        plain.round(drafts=())
    stream = plain.history[len(PROMPT) :]
    for accepted in range(K + 1):
        emitted = len(drafted.history) - len(PROMPT)
        done = drafted.round(drafts=scripted(stream, emitted, K, accepted))
        ones = [steps.round(drafts=()) for _ in range(accepted + 1)]
        rows = mx.concatenate([one.logits for one in ones])
        assert bits_equal(done.logits[: accepted + 1], rows) is None
        assert require_equal(drafted.state(), steps.state(), what="one-token steps")


def test_how_products_are_asked_for(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantised products and attention see one row a call; dense ones a batch of such rows."""
    rows: list[int] = []

    def spy(owner: Any, name: str, axis: int) -> None:
        inner = getattr(owner, name)

        def seen(self: Any, x: mx.array, *rest: Any, **named: Any) -> Any:
            rows.append(x.shape[axis])
            return inner(self, x, *rest, **named)

        monkeypatch.setattr(owner, name, seen)

    session = Session(*pair, row_exact=True)
    session.prefill(PROMPT)
    spy(nn.QuantizedLinear, "__call__", 1)
    spy(nn.Linear, "__call__", 1)
    spy(QuantizedSwitchLinear, "__call__", 1)
    attend = base.scaled_dot_product_attention
    queries: list[int] = []

    def attention(q: mx.array, *rest: Any, **named: Any) -> mx.array:
        queries.append(q.shape[2])
        return attend(q, *rest, **named)

    monkeypatch.setattr(row_exact, "scaled_dot_product_attention", attention)
    monkeypatch.setattr("mlx_lm.models.qwen3_next.scaled_dot_product_attention", attention)
    opened = session.inject([1] * K)
    rows.clear()
    queries.clear()
    session.verify(opened)
    assert set(queries) <= {1}
    assert set(rows) <= {1}
    assert queries or pair[0].args.full_attention_interval > len(pair[0].layers)


def test_the_model_itself_stays_as_it_was(pair: tuple[Any, Any]) -> None:
    """A twin shares the weights and replaces nothing in the model."""
    target, _ = pair
    kinds = [type(module) for module in target.model.modules()]
    twins = RowExactQwen(target).layers
    assert [type(module) for module in target.model.modules()] == kinds
    assert len(twins) == len(target.layers)
