"""Rows sorted by expert: the bits of rows that are not, on both sides of the switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from mtp_decoder.experts import Grouped, OffloadSettings, Shards, Ungrouped, group, offload
from mtp_decoder.qwen.load import load
from reference_models.checkpoint import read, write
from reference_models.prompts import prompt_tokens
from reference_models.weights import draw
from reference_models.zoo import config_of, tensors_of

LENGTHS = (31, 32)
"""Rows of a pass; each meets two experts, and sorting begins at 64 pairs."""


def decoded(target: Any, head: Any, length: int) -> dict[str, mx.array]:
    """A prompt whose first pass has so many rows, and a verify pass of as many."""
    session = Session(target, head, prefill_step_size=length)
    found = {"prompt": session.prefill(prompt_tokens(length + 1)).logits}
    session.inject(list(prompt_tokens(40)[: length - 1]))
    session.verify(list(prompt_tokens(40)[: length - 1]))
    outcome = session.accept()
    session.rewind(outcome)
    return session.state() | found | {"logprobs": outcome.logprobs}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("on_disk", [0, 3])
@pytest.mark.parametrize("name", ["gdn-moe", "gdn-moe+mlx-lm"])
def test_grouped_equals_ungrouped(
    checkpoint: Callable[..., Path], name: str, on_disk: int, length: int
) -> None:
    """With drafts and without, in memory and on disk, sorted rows have the bits of unsorted."""
    folder, classes = checkpoint(name.partition("+")[0]), name == "gdn-moe+mlx-lm"
    experts = OffloadSettings(on_disk * 6144) if on_disk else None
    found = [
        decoded(*_model(folder, experts, classes=classes, sort=sort), length)
        for sort in (None, False, True)
    ]
    require_equal(found[1], found[0], what="the model's own way")
    require_equal(found[2], found[0], what="the model's own way")


def _model(
    folder: Path, experts: OffloadSettings | None, *, classes: bool, sort: bool | None
) -> tuple[Any, Any]:
    if classes:
        target, head = load(folder, experts)
    else:
        target, head = read(folder)
        if experts is not None:
            offload(target, head, Shards(folder), experts)
    assert head is not None
    if sort is not None:
        group(target.layers, sort=sort)
        group(head.layers, sort=sort)
    return target, head


@pytest.mark.parametrize("rows", [31, 32])
def test_a_head_of_two_layers(tmp_path: Path, rows: int) -> None:
    """The second layer of a head reads what sorted experts gave; it has a row fewer of a prompt."""
    config = replace(config_of("gdn-moe"), mtp_num_hidden_layers=2)
    weights = {n: mx.array(draw("two", n, t)) for n, t in tensors_of(config).items()}
    folder = write(config, weights, tmp_path)
    due, found = (
        decoded(*_model(folder, None, classes=False, sort=sort), rows + 1) for sort in (False, True)
    )
    require_equal(found, due, what="rows as they come")


class Seen:
    """Experts that write down what they were given and return x for each of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.chosen: list[list[int]] = []

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Give every row back as often as it chose an expert."""
        self.calls += 1
        self.chosen.append(chosen.flatten().tolist())  # pyright: ignore[reportArgumentType]
        return mx.repeat(x[..., None, :], chosen.shape[-1], axis=-2)


def _given(wrap: type[Grouped], rows: int) -> Sequence[list[int]]:
    seen = Seen()
    x = mx.arange(rows)[None, :, None].astype(mx.float32)
    chosen = ((mx.arange(2 * rows) * 5) % 7).reshape(1, rows, 2)
    done = wrap(seen)(x, chosen)
    assert done.shape == (1, rows, 2, 1)
    assert done[..., 0].tolist() == mx.repeat(mx.arange(rows)[None, :, None], 2, axis=2).tolist()
    return seen.chosen


@pytest.mark.parametrize("rows", [31, 32])
def test_where_sorting_begins(rows: int) -> None:
    """From 64 pairs on experts see rows in order of their number; below, as they come."""
    (chosen,) = _given(Grouped, rows)
    assert (chosen == sorted(chosen)) == (rows == 32)


@pytest.mark.parametrize("rows", [31, 32, 100])
def test_never_sorted(rows: int) -> None:
    """Without grouping no call has as many pairs as would be sorted."""
    calls = _given(Ungrouped, rows)
    assert [expert for call in calls for expert in call] == [(5 * i) % 7 for i in range(2 * rows)]
    assert max(map(len, calls)) < 64
