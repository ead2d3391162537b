"""mlx-lm's models, exact by row while rows stay together: bits, and how products are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import base
from mlx_lm.models.switch_layers import SwitchGLU
from mlx_lm.tuner.lora import LoRALinear, LoRASwitchLinear

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import Session
from mtp_decoder.qwen import row_exact
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.qwen.row_exact import RowsTogether
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
    """Attention sees one query a call, and dense products a batch of rows."""
    rows: list[int] = []
    dense = nn.Linear.__call__

    def seen(self: nn.Linear, x: mx.array) -> mx.array:
        rows.append(x.shape[1])
        return dense(self, x)

    session = Session(*pair, row_exact=True)
    session.prefill(PROMPT)
    monkeypatch.setattr(nn.Linear, "__call__", seen)
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


class _Rounds:
    """Products that round by rows from some number of them on."""

    def __init__(self, module: Any, from_rows: int) -> None:
        self._module, self._from = module, from_rows
        self.rows: list[int] = []

    def __call__(self, x: mx.array, *rest: mx.array) -> mx.array:
        self.rows.append(x.shape[1])
        out = self._module(x, *rest)
        return out * 1.0000002 if x.shape[1] >= self._from else out


@pytest.mark.parametrize(
    ("from_rows", "length", "asked"),
    [(9, 7, [7]), (2, 5, [1] * 5), (4, 5, [3, 2]), (4, 3, [3]), (99, 40, [16, 16, 8])],
)
def test_rows_together(
    from_rows: int, length: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows a call as were seen to keep their bits; asked once a shape."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    weights = nn.QuantizedLinear(64, 1024, bias=False)
    module = _Rounds(weights, from_rows)
    together = RowsTogether(module, weights)
    x = mx.random.normal((1, length, 64))
    alone = mx.concatenate([weights(x[:, t : t + 1]) for t in range(length)], axis=1)
    for _ in range(2):
        module.rows.clear()
        assert bits_equal(together(x), alone) is None
    assert module.rows == asked


class _RoundsAt(_Rounds):
    """Products that round by rows at some numbers of them alone."""

    def __init__(self, module: Any, *at: int) -> None:
        super().__init__(module, 99)
        self._at = at

    def __call__(self, x: mx.array, *rest: mx.array) -> mx.array:
        out = super().__call__(x, *rest)
        return out * 1.0000002 if x.shape[1] in self._at else out


@pytest.mark.parametrize(
    ("at", "length", "asked"),
    [((2, 4, 5), 5, [3, 1, 1]), ((2, 9, 10), 10, [8, 1, 1]), ((4,), 20, [16, 3, 1])],
)
def test_the_rows_left_are_asked_about_too(
    at: tuple[int, ...], length: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That many rows keep their bits says nothing of fewer: another kernel may take those."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    weights = nn.QuantizedLinear(64, 1024, bias=False)
    module = _RoundsAt(weights, *at)
    together = RowsTogether(module, weights)
    x = mx.random.normal((1, length, 64))
    together(x)
    module.rows.clear()
    rows = together(x)
    assert module.rows == asked
    one = [weights(x[:, t : t + 1]) for t in range(length)]
    assert bits_equal(rows, mx.concatenate(one, axis=1)) is None


def test_an_answer_is_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the CPU keeps together says nothing of a GPU in the same process."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    weights = nn.QuantizedLinear(64, 1024, bias=False)
    module = _Rounds(weights, 99)
    x = mx.zeros((1, 2, 64))
    RowsTogether(module, weights)(x)
    monkeypatch.setattr(mx, "default_device", lambda: "another")
    module.rows.clear()
    RowsTogether(module, weights)(x)
    assert module.rows[-1] == 2
    assert len(module.rows) > 1


class _SignedZeros(_Rounds):
    """Zeros, of the other sign in company."""

    def __call__(self, x: mx.array, *rest: mx.array) -> mx.array:
        out = mx.zeros_like(super().__call__(x, *rest))
        return -out if x.shape[1] > 1 else out


def test_zeros_of_two_signs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are equal numbers and other bits."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    weights = nn.QuantizedLinear(64, 1024, bias=False)
    module = _SignedZeros(weights, 99)
    RowsTogether(module, weights)(mx.zeros((1, 2, 64)))
    assert module.rows[-2:] == [1, 1]


class _Scaled(nn.Linear):
    """A projection of a class of its own."""

    def __call__(self, x: mx.array) -> mx.array:
        """Twice as much."""
        return 2 * super().__call__(x)


def _adapted() -> nn.Module:
    linear = nn.Linear(64, 32, bias=False)
    adapted = LoRALinear.from_base(linear, r=4)
    adapted.lora_b = mx.random.normal((4, 32))
    return adapted


@pytest.mark.parametrize(
    "make",
    [_adapted, lambda: _Scaled(64, 32, bias=False), lambda: nn.QQLinear(64, 32, mode="mxfp8")],
    ids=["lora", "subclass", "quantised rows"],
)
def test_products_of_another_class_go_row_by_row(make: Callable[[], nn.Module]) -> None:
    """An adapter's matrices, a projection that does more, one that quantises its rows."""
    module = make()
    assert isinstance(row_exact.twin(module), row_exact.RowByRow)


def test_adapted_experts_go_row_by_row() -> None:
    """mlx-lm's experts with an adapter inside are not those that were looked at."""
    block = nn.Module()
    experts: Any = SwitchGLU(32, 16, 4)
    experts.gate_proj = LoRASwitchLinear.from_base(experts.gate_proj)
    block.switch_mlp = experts
    assert isinstance(row_exact.twin(block).switch_mlp, row_exact.RowByRow)


@pytest.mark.parametrize(("size", "one_by_one"), [(64, False), (48, True)])
def test_a_tied_projection(size: int, *, one_by_one: bool) -> None:
    """A tied embedding is held to the same sizes as any dense product."""
    embedding = nn.Embedding(100, size)
    project = row_exact.projection(embedding, tied=True)
    assert isinstance(project, row_exact.RowByRow) is one_by_one
    x = mx.random.normal((1, 3, size))
    one = [embedding.as_linear(x[:, t : t + 1]) for t in range(3)]
    assert bits_equal(project(x), mx.concatenate(one, axis=1)) is None


class _Seldom(_Rounds):
    """Products of which one value in a thousand or so is another one in company."""

    def __call__(self, x: mx.array, *rest: mx.array) -> mx.array:
        """Change values by what they are."""
        out = super().__call__(x, *rest)
        changed = out.view(mx.uint32) % 1000 == 7
        return mx.where(changed, out * 1.0000002, out) if x.shape[1] > 1 else out


@pytest.mark.parametrize("outputs", [1, 16, 2048])
def test_a_rare_difference(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is met among many values, and few are not asked about."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    weights = nn.QuantizedLinear(64, outputs, bias=False)
    module = _Seldom(weights, 99)
    RowsTogether(module, weights)(mx.zeros((1, 2, 64)))
    assert module.rows[-2:] == [1, 1]


def test_an_answer_is_of_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number of outputs, bits or another type of rows is asked about anew."""
    answers: dict[Any, bool] = {}
    monkeypatch.setattr(row_exact, "_ANSWERS", answers)
    x = mx.zeros((1, 2, 64))
    for module in (
        nn.QuantizedLinear(64, 1024, bias=False),
        nn.QuantizedLinear(64, 1024, bias=False),
        nn.QuantizedLinear(64, 1536, bias=False),
        nn.QuantizedLinear(64, 1024, bias=False, bits=8),
    ):
        RowsTogether(module, module)(x)
    RowsTogether(module, module)(x.astype(mx.bfloat16))
    assert len(answers) == 4
    assert all(answers.values())


@pytest.mark.parametrize(("width", "asked"), [(7, [7]), (8, [7, 1]), (9, [7, 2])])
def test_experts_that_would_be_sorted(
    width: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never so many choices a call that mlx-lm sorts them; those together keep their bits."""
    monkeypatch.setattr(row_exact, "_ANSWERS", {})
    experts = SwitchGLU(128, 16, 12)
    module = _Rounds(experts, 99)
    together = RowsTogether(module, experts, choices=12)
    x = mx.random.normal((1, width, 128))
    chosen = mx.argsort(mx.random.normal((1, width, 12)), axis=-1)[..., :8]
    together(x, chosen)
    module.rows.clear()
    rows = together(x, chosen)
    assert module.rows == asked
    one = [experts(x[:, t : t + 1], chosen[:, t : t + 1]) for t in range(width)]
    assert bits_equal(rows, mx.concatenate(one, axis=1)) is None


def test_experts_of_another_class_go_row_by_row() -> None:
    """What stands for mlx-lm's experts, such as experts on disk, is asked for one row at a time."""
    block = nn.Module()
    block.switch_mlp = SwitchGLU(32, 16, 4)
    assert isinstance(row_exact.twin(block).switch_mlp, RowsTogether)
    block.switch_mlp = _Other(32, 16, 4)
    assert isinstance(row_exact.twin(block).switch_mlp, row_exact.RowByRow)


class _Other(SwitchGLU):
    """Experts of a class of their own."""


def test_a_weight_that_is_replaced() -> None:
    """The batch of matrices is of the weight that the module has now."""
    linear = nn.Linear(64, 32, bias=False)
    products = row_exact.OneRowProducts(linear)
    x = mx.random.normal((1, 3, 64))
    first = products(x)
    linear.weight = 2 * linear.weight
    assert bits_equal(products(x), 2 * first) is None


def test_the_model_itself_stays_as_it_was(pair: tuple[Any, Any]) -> None:
    """A twin shares the weights and replaces nothing in the model."""
    target, _ = pair
    kinds = [type(module) for module in target.model.modules()]
    twins = RowExactQwen(target).layers
    assert [type(module) for module in target.model.modules()] == kinds
    assert len(twins) == len(target.layers)
