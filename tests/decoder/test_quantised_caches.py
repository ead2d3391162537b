"""Session: keys and values in mlx-lm's quantised cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

from mtp_conformance import Cell, Oracles, Unsupported
from mtp_conformance.adapters.builtin import BuiltinRuntime, zoo_materials
from mtp_conformance.exactness import require_equal
from mtp_decoder import (
    CacheMismatchError,
    DecoderError,
    Head,
    Session,
    SessionFileError,
    Target,
    generate_step,
    make_prompt_cache,
)
from mtp_decoder.errors import MissingKernelError
from mtp_decoder.qwen.load import Loaded
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, STRATEGIES, OtherCaches, scripted, target_arrays

KV: dict[str, Any] = {"kv_bits": 8, "kv_group_size": 32}
STARTS = (0, 1, 13, 14, 15, 17, 20)
"""0 and, with a prompt of 13 tokens, before, at and behind its end, and amid the rounds."""
SCRIPT = ((3, 1), (2, 2), (0, 0), (4, 0), (3, 3), (2, 1))

Models = Callable[[str], tuple[Target, Head]]


@pytest.fixture
def models(zoo: Zoo, qwen: Callable[[str], Loaded]) -> Models:
    """Return a function to the reference model's or mlx-lm's classes of the wide zoo model."""

    def load(kind: str) -> tuple[Target, Head]:
        if kind == "reference":
            return zoo("gdn-wide")
        loaded = qwen("gdn-wide")
        assert loaded.head is not None
        return loaded.target, loaded.head

    return load


class Plainly:
    """A run without drafts, with the state after every token."""

    def __init__(self, target: Target, **options: Any) -> None:
        session = Session(target, **options)
        self.tokens = list(session.prefill(PROMPT).tokens)
        self.states = [session.state()]
        for _ in range(30):
            self.tokens += session.round().tokens
            self.states.append(session.state())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["reference", "mlx-lm"])
def test_rewound_state(models: Models, kind: str, strategy: str, bits: int) -> None:
    """After every round packed rows, scales and offset are those of a run without drafts."""
    target, head = models(kind)
    plain = Plainly(target, kv_bits=bits, kv_group_size=32)
    session = Session(target, head, rewind=strategy, kv_bits=bits, kv_group_size=32)
    session.prefill(PROMPT)
    emitted = 1
    for k, accepted in SCRIPT:
        done = session.round(drafts=scripted(plain.tokens, emitted, k, accepted))
        assert done.accepted == accepted
        emitted += accepted + 1
        state = target_arrays(session.state())
        require_equal(state, plain.states[emitted - 1], what="the run without drafts")
        assert {str(state[f"layers.1.{n}"].dtype) for n in ("keys", "values")} == {
            "mlx.core.uint32"
        }


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", ["reference", "mlx-lm"])
def test_where_it_starts(models: Models, kind: str, start: int) -> None:
    """Wherever rows begin to be quantised, drafts change neither tokens nor state."""
    target, head = models(kind)
    plain = Plainly(target, quantized_kv_start=start, **KV)
    session = Session(target, head, quantized_kv_start=start, **KV)
    session.prefill(PROMPT)
    emitted = 1
    while emitted < 16:
        k = 3
        drafts = scripted(plain.tokens, emitted, k, 2)
        done = session.round(drafts=drafts)
        emitted += len(done.tokens)
        assert list(done.tokens) == plain.tokens[emitted - len(done.tokens) : emitted]
        due = plain.states[emitted - 1]
        require_equal(target_arrays(session.state()), due, what="the run without drafts")
    quantised = "layers.1.keys_scales" in session.state()
    assert quantised == (session.target_length > start)


def test_no_draft_crosses_the_start(models: Models) -> None:
    """A round before the start drafts up to it and no further; then as many as asked for."""
    target, head = models("reference")
    session = Session(target, head, quantized_kv_start=16, **KV)
    session.prefill(PROMPT)
    assert len(session.draft(5)) == 2
    session.cancel()
    while session.target_length < 16:
        session.round(5)
    assert len(session.draft(5)) == 5


def test_cancelled_where_it_starts(models: Models) -> None:
    """A cancelled round that quantised rows puts the plain ones back, and can be made again."""
    target, head = models("reference")
    session, twin = (Session(target, head, quantized_kv_start=13, **KV) for _ in range(2))
    for one in (session, twin):
        one.prefill(PROMPT)
    cache: Any = vars(session)["_given"]
    session.verify(session.draft(3))
    assert type(cache[1]) is QuantizedKVCache
    session.cancel()
    assert type(cache[1]) is KVCache
    require_equal(session.state(), twin.state(), what="the state before the cancelled round")
    assert session.round(3).tokens == twin.round(3).tokens
    require_equal(session.state(), twin.state(), what="a session without the cancelled round")


def test_a_prompt_that_fails_where_it_starts(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefill that fails after rows were quantised puts the plain, empty caches back."""
    target, head = models("reference")
    cache = make_prompt_cache(target, head)
    settings: dict[str, Any] = {"quantized_kv_start": 5, "prefill_step_size": 5, **KV}
    session = Session(target, head, prompt_cache=cache, **settings)
    twin = Session(target, head, **settings)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(target, "logits", lambda *_: 1 // 0)
        session.prefill(PROMPT)
    assert type(cache[1]) is KVCache
    for one in (session, twin):
        one.prefill(PROMPT)
    require_equal(session.state(), twin.state(), what="a session in which nothing failed")
    assert type(cache[1]) is QuantizedKVCache


@pytest.mark.parametrize("start", [0, 15])
def test_prompt_cache(models: Models, start: int) -> None:
    """The prompt cache given is the quantised one, and a second call goes on with it."""
    target, head = models("reference")
    settings: dict[str, Any] = {"quantized_kv_start": start, **KV}
    plain = Plainly(target, **settings)
    cache = make_prompt_cache(target, head)
    options: dict[str, Any] = {"prompt_cache": cache, "max_tokens": 5, **settings}
    first = [t for t, *_ in generate_step(PROMPT, target, head, **options)]
    second = [t for t, *_ in generate_step(first[-1:], target, head, **options)]
    assert first + second == plain.tokens[:10]
    assert [type(c) for c in cache[1:4:2]] == [QuantizedKVCache] * 2
    assert (cache[1].offset, type(cache[4])) == (22, QuantizedKVCache)


def test_forks(models: Models) -> None:
    """A fork shares no packed row with the session it came from."""
    target, head = models("reference")
    session = Session(target, head, **KV)
    session.prefill(PROMPT)
    twin = session.fork()
    before = session.state()
    for k in (3, 0, 2):
        twin.round(k)
    require_equal(session.state(), before, what="the state before the fork's rounds")
    for k in (3, 0, 2):
        session.round(k)
    require_equal(session.state(), twin.state(), what="the fork")


@pytest.mark.parametrize("start", [0, 14])
def test_saved(models: Models, tmp_path: Path, start: int) -> None:
    """A quantised session, and one about to be, are saved and go on to the bit."""
    target, head = models("reference")
    settings: dict[str, Any] = {"quantized_kv_start": start, **KV}
    session, restored = (Session(target, head, **settings) for _ in range(2))
    session.prefill(PROMPT)
    session.save(tmp_path / "s")
    restored.restore(tmp_path / "s")
    for k in (3, 0, 2):
        assert restored.round(k).tokens == session.round(k).tokens
        require_equal(restored.state(), session.state(), what="the session that never stopped")


@pytest.mark.parametrize("other", [{}, {**KV, "kv_bits": 4}, {**KV, "quantized_kv_start": 9}])
def test_saved_with_other_bits(models: Models, tmp_path: Path, other: dict[str, Any]) -> None:
    """A file is restored with the bits it was saved with, or not at all."""
    target, head = models("reference")
    session = Session(target, head, **KV)
    session.prefill(PROMPT)
    session.save(tmp_path / "s")
    with pytest.raises(SessionFileError, match="kv_bits"):
        Session(target, head, **other).restore(tmp_path / "s")


REFUSED: dict[str, dict[str, Any]] = {
    "kv_bits must be one of 2, 4, 8, not 6": {"kv_bits": 6},
    "kv_group_size must be one of 32, 64, 128, not 16": {"kv_bits": 8, "kv_group_size": 16},
    "quantized_kv_start must be 0 or more": {**KV, "quantized_kv_start": -1},
    "layer 1: rows of 32 do not divide into groups of 64": {"kv_bits": 8},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_settings(models: Models, message: str) -> None:
    """Settings that mlx's quantisation does not have are refused before anything is run."""
    with pytest.raises(DecoderError, match=message):
        Session(*models("reference"), **REFUSED[message])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("window", "layer 0: a RotatingKVCache cannot be quantised; decode without kv_bits"),
        ("qsa", "layer 1: a CacheList cannot be quantised"),
        ("gdn", "layer 2: rows of 16 do not divide into groups of 32"),
    ],
)
def test_refused_models(zoo: Zoo, name: str, message: str) -> None:
    """A model whose keys and values cannot be quantised is refused by the layer."""
    with pytest.raises(DecoderError, match=message):
        Session(*zoo(name), **KV)


def test_refused_heads(models: Models) -> None:
    """So is a head."""
    target, head = models("reference")
    whole = type(head).make_cache
    other: Any = object.__new__(type(head))
    vars(other).update(vars(head))
    other.make_cache = lambda: [RotatingKVCache(max_size=8) for _ in whole(head)]
    with pytest.raises(DecoderError, match="head layer 0: a RotatingKVCache cannot be quantised"):
        Session(target, other, **KV)


def test_a_backend_without_the_kernel(
    models: Models, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where mlx has no product with such rows a session is refused, and a case unsupported.

    Any other error is passed on.
    """

    def missing(*_: object, **__: object) -> None:
        raise RuntimeError("[quantized_matmul] No implementation for problem shape: 1x1x32x4")

    def wrong(*_: object, **__: object) -> None:
        raise RuntimeError("rows of two lengths")

    monkeypatch.setattr(mx, "quantized_matmul", wrong)
    with pytest.raises(RuntimeError, match="rows of two lengths"):
        Session(*models("mlx-lm"), **KV)
    monkeypatch.setattr(mx, "quantized_matmul", missing)
    with pytest.raises(MissingKernelError, match=r"8 bits in groups of 32 on .*: .* without kv_"):
        Session(*models("mlx-lm"), **KV)
    oracles = Oracles(BuiltinRuntime(), zoo_materials(tmp_path))
    extra = (("kv_bits", 8), ("kv_group_size", 32))
    with pytest.raises(Unsupported, match="No implementation for problem shape"):
        oracles.group(Cell("gdn-wide+mlx-lm", "tape", 1, None, "float32", 2, extra))


@pytest.mark.parametrize("settings", [{}, {**KV, "kv_bits": 4}])
def test_a_prompt_cache_of_other_bits(models: Models, settings: dict[str, Any]) -> None:
    """A prompt cache quantised otherwise is refused with both settings."""
    target, head = models("reference")
    cache = make_prompt_cache(target, head)
    Session(target, head, prompt_cache=cache, **KV).prefill(PROMPT)
    message = r"entry 1 .* QuantizedKVCache\(bits=8, group_size=32\).* other than (none|bits=4)"
    with pytest.raises(CacheMismatchError, match=message):
        Session(target, head, prompt_cache=cache, **settings)


def test_a_quantised_cache_of_the_models_own(models: Models) -> None:
    """A target that makes quantised caches by itself needs no setting."""
    target, _ = models("reference")
    made = {i: QuantizedKVCache(group_size=32, bits=8) for i in (1, 3)}
    session = Session(OtherCaches(target, made))
    plain = Plainly(target, **KV)
    assert list(session.prefill(PROMPT).tokens) == plain.tokens[:1]
    state = session.state()
    require_equal(state, plain.states[0], what="a session with kv_bits")
    assert state["layers.1.keys_scales"].dtype == mx.float32
