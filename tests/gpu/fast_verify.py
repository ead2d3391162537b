"""Where the time of a fast verify pass goes: its parts alone, by width.

Attention is asked twice: over as many keys every time, and over more keys at every call, as in
decoding. What is dear only the second way is paid anew for every length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from mtp_decoder.qwen.row_exact import one_row_products
from mtp_decoder.session import Session
from tests.gpu.exact import PROMPT, plain, session
from tests.gpu.models import Subject
from tests.gpu.rows import Row

_HEADS, _KV, _DIM = 16, 4, 128
_REPEATS = 24
_WARM_UP = 4


def where(subject: Subject, pair: Any, width: int) -> Iterator[Row]:
    """Milliseconds of the parts of one pass of `width` rows, each alone."""
    hidden: int = pair[0].args.hidden_size
    x = mx.random.normal((1, width, hidden)).astype(mx.bfloat16)
    weight = mx.random.normal((3 * hidden, hidden)).astype(mx.bfloat16)
    mx.eval(x, weight)
    parts: dict[str, Callable[[int], Any]] = {
        "product": lambda _: x @ weight.T,
        "product as one-row batch": lambda _: one_row_products(x, weight.T[None, None]),
        "attention, as many keys every time": lambda _: _attention(width, 512),
        "attention, more keys every time": lambda n: _attention(width, 512 + n),
        "attention by query, more keys every time": lambda n: _by_query(width, 512 + n),
        "mixer of a linear layer": _linear_mixer(pair, x),
    }
    for name, part in parts.items():
        yield _row(subject, width, name, _timed(part))
    yield _row(subject, width, "pass, as many keys every time", _passes(pair, width, again=True))
    yield _row(subject, width, "pass, more keys every time", _passes(pair, width, again=False))


def _timed(part: Callable[[int], Any]) -> list[float]:
    found: list[float] = []
    for number in range(_WARM_UP + _REPEATS):
        mx.synchronize()
        start = time.perf_counter()
        mx.eval(part(number))
        mx.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return found[_WARM_UP:]


def _attention(width: int, keys: int) -> mx.array:
    q = mx.ones((1, _HEADS, width, _DIM), mx.bfloat16)
    kv = mx.ones((1, _KV, keys, _DIM), mx.bfloat16)
    mask = "causal" if width > 1 else None
    return mx.fast.scaled_dot_product_attention(q, kv, kv, scale=_DIM**-0.5, mask=mask)


def _by_query(width: int, keys: int) -> list[mx.array]:
    q = mx.ones((1, _HEADS, 1, _DIM), mx.bfloat16)
    kv = mx.ones((1, _KV, keys, _DIM), mx.bfloat16)
    return [
        mx.fast.scaled_dot_product_attention(
            q, kv[:, :, : keys - t], kv[:, :, : keys - t], scale=_DIM**-0.5
        )
        for t in range(width)
    ]


def _linear_mixer(pair: Any, x: mx.array) -> Callable[[int], Any]:
    layer = next(layer for layer in pair[0].layers if hasattr(layer, "slots"))
    cache = pair[0].make_cache()[pair[0].layers.index(layer)]
    return lambda _: layer.wrapped.linear_attn(x, None, cache)


def _passes(pair: Any, width: int, *, again: bool) -> list[float]:
    """Verify passes one after the other, each undone first or not."""
    stream = plain(pair, (_WARM_UP + _REPEATS) * width + width + 1)
    made: Session = session(pair)
    found: list[float] = []
    for _ in range(_WARM_UP + _REPEATS):
        emitted = len(made.history) - PROMPT
        before = made.counters.seconds["verify"]
        if again:
            made.verify(stream[emitted : emitted + width - 1])
            made.cancel()
        else:
            done = made.round(drafts=stream[emitted : emitted + width - 1])
            stream[emitted : emitted + len(done.tokens)] = done.tokens
        found.append(1e3 * (made.counters.seconds["verify"] - before))
    return found[_WARM_UP:]


def _row(subject: Subject, width: int, what: str, milliseconds: list[float]) -> Row:
    return {
        "part": "where",
        "model": subject.name,
        "width": width,
        "what": what,
        "ms": [round(value, 4) for value in milliseconds],
    }
