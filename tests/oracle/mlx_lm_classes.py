"""The trajectory of mlx-lm's own classes on the same folder, with the head its loader drops.

The trunk is mlx-lm's model and its caches; the head is `mtp_decoder`'s, made of mlx-lm's layers.
Without a recurrent layer mlx-lm 0.32.2 cannot be given a cache; then there is one pass alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

from mtp_decoder.qwen.load import load
from tests.oracle.reference import numbers
from tests.oracle.trajectory import PARTS, Array, Recorder, Trajectory


def trajectory(folder: Path, tokens: list[int], chain: list[int]) -> Trajectory:
    """What mlx-lm's class of the family computes; names as in `oracle.trajectory`.

    Args:
        folder: a checkpoint of a family that mlx-lm has.
        tokens: T tokens of a prompt.
        chain: what the head is given after its last pair.
    """
    model: Any = load_model(folder)[0]
    found = {"logits": numbers(model(mx.array([tokens]))[0])}
    if not any(layer.is_linear for layer in model.layers):
        return found
    cache = model.make_cache()
    parts = [model(mx.array([tokens[start:end]]), cache) for start, end in PARTS]
    found["logits.parts"] = numbers(mx.concatenate(parts, axis=1)[0])
    return {**found, **_steps(model, tokens), **_head(folder, tokens, chain)}


def _steps(model: Any, tokens: list[int]) -> Trajectory:
    recorder, cache = Recorder(), model.make_cache()
    for token in tokens:
        recorder.take("logits.steps", numbers(model(mx.array([[token]]), cache)[0, 0]))
        for i, (layer, state) in enumerate(zip(model.layers, cache, strict=True)):
            if layer.is_linear:
                window = numbers(state[0][0])
                recorder.rows(f"layers.{i}.conv", window, len(window))
                recorder.take(f"layers.{i}.recurrent", numbers(state[1][0]))
            else:
                _take_rows(f"layers.{i}", state, recorder)
    return recorder.trajectory()


def _take_rows(name: str, cache: Any, recorder: Recorder) -> None:
    for kind, part in zip(("keys", "values"), (cache.keys, cache.values), strict=True):
        recorder.rows(f"{name}.{kind}", numbers(part[0, :, : cache.offset].swapaxes(0, 1)))


def _head(folder: Path, tokens: list[int], chain: list[int]) -> Trajectory:
    """Residuals, pairs one at a time, then drafts fed back."""
    target, head = load(folder)
    assert head is not None
    recorder, cache = Recorder(), target.make_cache()
    ids = mx.array([tokens])
    x = target.embed(ids)
    for layer, state in zip(target.layers, cache, strict=True):
        x = layer(x, ids, state)
    pairs, out = head.make_cache(), x
    for i, token in enumerate(tokens[1:]):
        logits, out = head(x[:, i : i + 1], mx.array([[token]]), pairs)
        recorder.take("head.logits", numbers(logits[0, 0]))
        for index, state in enumerate(pairs):
            _take_rows(f"head.{index}", state, recorder)
    found = recorder.trajectory()
    rows: list[Array] = [found["head.logits"][-1]]
    for draft in chain:
        logits, out = head(out, mx.array([[draft]]), pairs)
        rows.append(numbers(logits[0, 0]))
    return {**found, "hidden": numbers(x[0]), "head.chain": np.stack(rows)}
