"""The trajectory of a reference model, read from its own caches.

Selections, scores and PLE rows are no state; they are taken where the model computes them, by
standing in the way of one method of one object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from reference_models.hybrid import HybridLayer, HybridModel, LinearLayer
from reference_models.mtp import MTPHead
from reference_models.pooled import IndexedAttention
from reference_models.sliding import SlidingAttention, temporal_rows
from tests.oracle.trajectory import PARTS, Array, Recorder, Trajectory, padded


def numbers(array: mx.array) -> Array:
    """An mlx array as NumPy's, floats in float32."""
    floats = mx.issubdtype(array.dtype, mx.floating)
    return np.array(array.astype(mx.float32) if floats else array)


def trajectory(
    target: HybridModel, head: MTPHead, tokens: list[int], chain: list[int]
) -> Trajectory:
    """Everything `oracle.trajectory` names that this model has.

    Args:
        target: the model.
        head: its head.
        tokens: T tokens of a prompt.
        chain: what the head is given after its last pair, K-1 drafts.
    """
    found = {"logits": numbers(target(mx.array([tokens]))[0])}
    found["logits.parts"] = _in_parts(target, tokens)
    steps, hidden = _steps(target, tokens)
    return {**found, **steps, **_head(head, hidden, tokens, chain)}


def _in_parts(target: HybridModel, tokens: list[int]) -> Array:
    cache = target.make_cache()
    parts = [target(mx.array([tokens[start:end]]), cache) for start, end in PARTS]
    return numbers(mx.concatenate(parts, axis=1)[0])


def _steps(target: HybridModel, tokens: list[int]) -> tuple[Trajectory, mx.array]:
    """The states, one token at a time, and the residuals [1, T, W] a head reads."""
    recorder, cache, hidden = Recorder(), target.make_cache(), []
    with ExitStack() as stack:
        watched = [
            stack.enter_context(watching(f"layers.{i}", layer, recorder))
            for i, layer in enumerate(target.layers)
        ]
        for token in tokens:
            ids = mx.array([[token]])
            x = target.embed(ids)
            for layer, state in zip(target.layers, cache, strict=True):
                x = layer(x, ids, state)
            hidden.append(x)
            recorder.take("hidden", numbers(x[0, 0]))
            recorder.take("logits.steps", numbers(target.logits(x)[0, 0]))
            for i, (layer, state) in enumerate(zip(target.layers, cache, strict=True)):
                take_state(f"layers.{i}", layer, state, recorder, target.config.eos_token_id)
    found = recorder.trajectory()
    for rows in watched:
        found |= rows(len(tokens))
    return found | _pooled(target.layers, cache, "layers"), mx.concatenate(hidden, axis=1)


def _head(head: MTPHead, hidden: mx.array, tokens: list[int], chain: list[int]) -> Trajectory:
    """Pairs one at a time, then K drafts fed back."""
    recorder, cache, out = Recorder(), head.make_cache(), mx.zeros(0)
    with ExitStack() as stack:
        watched = [
            stack.enter_context(watching(f"head.{i}", layer, recorder))
            for i, layer in enumerate(head.layers)
        ]
        for i, token in enumerate(tokens[1:]):
            logits, out = head(hidden[:, i : i + 1], mx.array([[token]]), cache)
            recorder.take("head.logits", numbers(logits[0, 0]))
            for index, (layer, state) in enumerate(zip(head.layers, cache, strict=True)):
                take_state(f"head.{index}", layer, state, recorder)
    found = recorder.trajectory() | _pooled(head.layers, cache, "head")
    for rows in watched:
        found |= rows(len(tokens) - 1)
    return {**found, "head.chain": _chain(head, found["head.logits"][-1], out, chain, cache)}


def _chain(
    head: MTPHead, first: Array, hidden: mx.array, chain: list[int], cache: list[Any]
) -> Array:
    """Logits [K, V] of the last pair and of the drafts after it."""
    rows = [first]
    for draft in chain:
        logits, hidden = head(hidden, mx.array([[draft]]), cache)
        rows.append(numbers(logits[0, 0]))
    return np.stack(rows)


def take_state(name: str, layer: Any, cache: Any, recorder: Recorder, eos: int = 0) -> None:
    """Record what one layer's cache holds after one more token."""
    if isinstance(layer, LinearLayer):
        _take_recurrence(name, layer, cache, recorder, eos)
        return
    attention = layer.attention
    kv = cache[0] if isinstance(attention, IndexedAttention) else cache
    if isinstance(attention, SlidingAttention):
        live = temporal_rows(kv)
    else:
        live = tuple(part[:, :, : kv.offset] for part in (kv.keys, kv.values))
    ring = isinstance(attention, SlidingAttention) and kv.offset > live[0].shape[2]
    size = live[0].shape[2] if ring else None
    for kind, part in zip(("keys", "values"), live, strict=True):
        recorder.rows(f"{name}.{kind}", numbers(part[0].swapaxes(0, 1)), size)
    if isinstance(attention, IndexedAttention):
        raw = cache[1].keys[0, 0, : cache[1].offset]
        recorder.rows(f"{name}.index_keys", numbers(raw))


def _take_recurrence(
    name: str, layer: LinearLayer, cache: Any, recorder: Recorder, eos: int
) -> None:
    slots = {slot: numbers(array[0]) for slot, array in zip(layer.slots, cache.cache, strict=True)}
    recorder.take(f"{name}.recurrent", slots.pop("recurrent"))
    for slot, live in slots.items():
        recorder.rows(f"{name}.{slot}", live, len(live), eos if slot == "ngram" else 0.0)


def _pooled(layers: Any, cache: list[Any], part: str) -> Trajectory:
    """Pooled rows, of which a complete block's never changes."""
    return {
        f"{part}.{i}.pooled": numbers(state[2][0][0])
        for i, (layer, state) in enumerate(zip(layers, cache, strict=True))
        if isinstance(layer, HybridLayer) and isinstance(layer.attention, IndexedAttention)
    }


@contextmanager
def watching(
    name: str, layer: HybridLayer | LinearLayer, recorder: Recorder
) -> Generator[Callable[[int], Trajectory]]:
    """Take what a layer computes on the way and no cache keeps.

    Yields:
        What gives the selections and scores taken, for a number of tokens.
    """
    selected: list[Array] = []
    scores: list[Array] = []
    with ExitStack() as stack:
        if isinstance(layer, LinearLayer) and layer.ple is not None:
            rows_of = _take_in(recorder, f"{name}.ngram_rows")
            stack.enter_context(_around(layer.ple, "_hash", rows_of))
            added_of = _take_in(recorder, f"{name}.ple_added")
            stack.enter_context(_around(layer, "ple", lambda out: added_of(out[0])))
        if isinstance(layer, HybridLayer) and isinstance(layer.attention, IndexedAttention):
            index = layer.attention.index
            scored = _around(index, "_score", lambda out: scores.append(numbers(out[0, 0])))
            stack.enter_context(scored)
            chose = lambda out: selected.append(numbers(out[0, 0, 0]))  # noqa: E731
            stack.enter_context(_around(layer.attention, "index", chose))

        def rows(length: int) -> Trajectory:
            if not selected:
                return {}
            blocks = max(len(row) for row in scores)
            return {
                f"{name}.selected": padded(selected, length, 0),
                f"{name}.scores": padded(scores, blocks, -1.0),
            }

        yield rows


def _take_in(recorder: Recorder, name: str) -> Callable[[mx.array], None]:
    return lambda out: recorder.take(name, numbers(out[0, 0]))


class _Watched:
    """Something that is called, and whose results are also given to somebody else."""

    def __init__(self, inner: Any, give: Callable[[Any], None]) -> None:
        self._inner = inner
        self._give = give

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = self._inner(*args, **kwargs)
        self._give(out)
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def _around(owner: Any, name: str, give: Callable[[Any], None]) -> Generator[None]:
    """Give away what `owner.name(...)` returns, while this lasts."""
    own = vars(owner)
    had, inner = name in own, getattr(owner, name)
    setattr(owner, name, _Watched(inner, give))
    try:
        yield
    finally:
        if had:
            setattr(owner, name, inner)
        else:
            delattr(owner, name)
