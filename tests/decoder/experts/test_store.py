"""Which experts are in slots: every request, hit, read and eviction, by an independent count."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from mtp_decoder.experts import Eviction, ExpertCounts, OffloadSettings, Shards
from mtp_decoder.experts import store as stores
from mtp_decoder.experts.layout import Part, expert_tensors, pieces_of
from mtp_decoder.experts.slots import Slots
from mtp_decoder.experts.store import ExpertStore
from reference_models.checkpoint import read, write
from reference_models.weights import draw
from reference_models.zoo import config_of, tensors_of
from tests.decoder.conftest import Zoo
from tests.decoder.experts.conftest import Offloaded, open_offloaded
from tests.decoder.helpers import PROMPT

CALLS = 60


def counted(calls: list[list[tuple[int, int]]], slots: int, *, by_use: bool) -> ExpertCounts:
    """Play calls of (layer, expert) on paper: a list of residents, worst first when asked."""
    uses: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    here: set[tuple[int, int]] = set()
    totals = ExpertCounts()
    for now, keys in enumerate(calls):
        totals.requests += len(keys)
        totals.hits += len(here & set(keys))
        for key in set(keys) - here:
            if len(here) == slots:
                frequency = uses if by_use else dict.fromkeys(uses, 0)
                free = here - set(keys)
                leaving = min(free, key=lambda k: (frequency[k], last[k], k))
                here.remove(leaving)
                totals.evictions += 1
            here.add(key)
            totals.reads += 1
        for key in keys:
            uses[key] = uses.get(key, 0) + 1
            last[key] = now
    totals.bytes_read = totals.reads * 3 * 16 * 32 * 4
    return totals


@pytest.mark.parametrize("slots", [3, 5, 11, 36, 50])
@pytest.mark.parametrize("eviction", list(Eviction))
def test_counts(offloaded: Callable[..., Offloaded], eviction: Eviction, slots: int) -> None:
    """Requests, hits, reads, bytes and evictions are those of the policy on paper."""
    store = offloaded("gdn-moe", slots, eviction=eviction).store
    drawn = random.Random(slots)
    calls = [
        [(layer, e) for e in sorted(set(drawn.choices(range(6), range(6, 0, -1), k=3)))]
        for layer in drawn.choices(range(6), k=CALLS)
    ]
    for keys in calls:
        store.acquire(keys[0][0], [expert for _, expert in keys])
    assert store.counts == counted(calls, slots, by_use=eviction is Eviction.LFU)
    assert store.counts.hits


def test_lfu_by_default() -> None:
    """Who names no way gets LFU, from the settings and from a store."""
    assert OffloadSettings(1).eviction is Eviction.LFU
    assert signature(ExpertStore).parameters["eviction"].default is Eviction.LFU


def test_a_buffer_is_evaluated_before_it_is_filled_anew(
    offloaded: Callable[..., Offloaded], zoo: Zoo
) -> None:
    """Two layers that take turns in one buffer compute what experts in memory compute, unasked."""
    target, _, store, _ = offloaded("gdn-moe", 1)
    rows, chosen = mx.random.normal((1, 4, 32), key=mx.random.key(0)), mx.array([[[0, 5]] * 4])
    with store.whole_layers():
        found = {f"{n}": target.layers[n].mlp.experts(rows, chosen) for n in range(3)}
    plain: Any = zoo("gdn-moe")[0]
    due = {f"{n}": plain.layers[n].mlp.experts(rows, chosen) for n in range(3)}
    require_equal(found, due, what="experts in memory")


def test_lfu_and_lru_differ(offloaded: Callable[..., Offloaded]) -> None:
    """Asked for often long ago stays with LFU, and leaves with LRU."""
    left = set[int]()
    for eviction in Eviction:
        store = offloaded("gdn-moe", 2, eviction=eviction).store
        for expert in (0, 0, 1, 2):
            store.acquire(3, [expert])
        left |= {expert for _, expert in store.resident} ^ {1, 2}
        assert (3, 2) in store.resident
    assert left == {0, 1}


def test_waves(offloaded: Callable[..., Offloaded]) -> None:
    """Experts that are in slots come first, so that none is evicted before its turn."""
    store = offloaded("gdn-moe", 2).store
    store.acquire(0, [3, 5])
    assert store.waves(0, [1, 2, 3, 4, 5]) == [[3, 5], [1, 2], [4]]


@pytest.mark.parametrize("step", [1, 4, 5, 2048])
def test_a_prompt_reads_every_expert_once(offloaded: Callable[..., Offloaded], step: int) -> None:
    """Through whole layers a prompt reads each layer's experts once, however many chunks."""
    target, head, store, head_store = offloaded("gdn-moe", 2)
    Session(target, head, prefill_step_size=step).prefill(PROMPT)
    assert (store.counts.reads, head_store.counts.reads) == (36, 6)
    assert store.counts.requests == 0
    assert store.resident == frozenset()


def test_a_short_turn_reads_what_it_needs(offloaded: Callable[..., Offloaded]) -> None:
    """A prompt of few tokens goes through slots, and reads no expert it did not choose."""
    target, head, store, _ = offloaded("gdn-moe", 40)
    Session(target, head).prefill(PROMPT[:1])
    assert store.counts.reads == store.counts.requests == 12  # two experts in each of six layers


@pytest.mark.parametrize("name", ["gdn-moe", "gdn-next", "flash-next"])
def test_slots_hold_what_the_checkpoint_says(
    checkpoint: Callable[..., Path], offloaded: Callable[..., Offloaded], name: str
) -> None:
    """Whatever the layout on disk, a slot holds the expert's own weights."""
    target: Any = read(checkpoint(name))[0]
    store = offloaded(name, 3).store
    slots, places = store.acquire(2, [1, 4])
    experts = target.layers[2].mlp.experts
    for expert, slot in places.items():
        found = {part: mx.array(stack[slot]) for part, stack in slots.stacks.items()}
        due = {"gate_up": experts.gate_up[expert], "down": experts.down[expert]}
        require_equal(found, due, what="the expert")


@pytest.mark.parametrize("name", ["gdn-moe", "gdn-next"])
def test_single_projections_of_any_layout(checkpoint: Callable[..., Path], name: str) -> None:
    """mlx-lm's separate gate and up are found in fused tensors and in single ones."""
    shards = Shards(checkpoint(name))
    shapes = {
        "gate_proj.weight": (16, 32),
        "up_proj.weight": (16, 32),
        "down_proj.weight": (32, 16),
    }
    parts = {part: Part(shape, mx.float32) for part, shape in shapes.items()}
    pieces = pieces_of(expert_tensors(shards, head=True)[0], parts, 6, "head layer 0")
    store = ExpertStore(shards, parts, {0: pieces}, 10**5)
    slots, places = store.acquire(0, [5])
    head: Any = read(checkpoint(name))[1]
    experts = head.layers[0].mlp.experts
    gate, up = mx.split(experts.gate_up[5], 2)
    due = {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": experts.down[5]}
    found = {part: mx.array(stack[places[5]]) for part, stack in slots.stacks.items()}
    require_equal(found, due, what="the expert")


def test_slots_are_memory_of_their_stacks() -> None:
    """What is written to a slot is what the stack computes with, and nothing beside it."""
    slots = Slots({"w": Part((2,), mx.float32)}, 3)
    slots.memory(1, "w")[:] = memoryview(bytes([0, 0, 128, 63] * 2))  # 1.0, little-endian
    assert slots.stacks["w"].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_the_whole_layer_buffer_is_given_back(offloaded: Callable[..., Offloaded]) -> None:
    """After a prompt the memory of the whole-layer buffer is free again."""
    target, head, store, _ = offloaded("gdn-moe", 1)
    session = Session(target, head)
    session.prefill(PROMPT)
    before = mx.get_active_memory()
    with store.whole_layers():
        store.whole(0)
        assert mx.get_active_memory() >= before + 6 * store.expert_bytes
    assert mx.get_active_memory() == before


def test_one_buffer_of_a_whole_layer(
    offloaded: Callable[..., Offloaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers of a target take turns in one buffer, and the head's layer has one."""
    made = list[int]()

    class Counted(Slots):
        def __init__(self, parts: Mapping[str, Part], count: int) -> None:
            made.append(count)
            super().__init__(parts, count)

    target, head, *_ = offloaded("gdn-moe", 1)
    monkeypatch.setattr(stores, "Slots", Counted)
    Session(target, head, prefill_step_size=2).prefill(PROMPT)
    assert made == [6, 6]


def test_a_head_of_two_layers(tmp_path: Path) -> None:
    """A head with several layers reads each one's experts once for the whole prompt, too."""
    config = replace(config_of("gdn-moe"), mtp_num_hidden_layers=2)
    weights = {n: mx.array(draw("two", n, t)) for n, t in tensors_of(config).items()}
    due, found = Session(*read(write(config, weights, tmp_path))), open_offloaded(tmp_path, 2)
    session = Session(found.target, found.head, prefill_step_size=3)
    due.prefill(PROMPT)
    session.prefill(PROMPT)
    assert found.head_store.counts.reads == 12
    require_equal(session.state(), due.state(), what="experts in memory")


def test_a_saved_session(
    checkpoint: Callable[..., Path], offloaded: Callable[..., Offloaded], tmp_path: Path
) -> None:
    """A session of experts in memory goes on with experts on disk, and the other way round."""
    folder = checkpoint("gdn-moe")
    target, head, *_ = offloaded("gdn-moe", 1)
    first, second = Session(*read(folder)), Session(target, head)
    first.prefill(PROMPT)
    first.save(tmp_path / "one")
    second.restore(tmp_path / "one")
    for session in (first, second):
        session.round(3)
    second.save(tmp_path / "two")
    third = Session(*read(folder))
    third.restore(tmp_path / "two")
    require_equal(third.state(), first.state(), what="experts in memory")


def test_no_more_slots_than_experts(offloaded: Callable[..., Offloaded]) -> None:
    """A budget for more than all experts takes no memory for what does not exist."""
    assert offloaded("gdn-moe", 1000).store.slots == 36
