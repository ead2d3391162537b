"""Experts of one model part, in slots under a byte budget, read from disk when they are needed.

Which expert goes when a slot is needed: the one that was asked for least often (LFU), of those
the one that was asked for longest ago; or the latter alone (LRU). All layers share the slots.

A prompt goes through one buffer that holds a whole layer (`whole_layers`): each layer's experts
are read once, however many chunks the prompt has.

**Before a slot is filled anew, everything computed from it has been evaluated.** Results are kept
until the next call, which evaluates them together with its own routing; a call that needs more
experts than there are slots goes in waves, and evaluates each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple

import mlx.core as mx

from mtp_decoder.errors import DecoderError
from mtp_decoder.experts.layout import Part
from mtp_decoder.experts.shards import Piece, Shards
from mtp_decoder.experts.slots import Slots

WORKERS = 8
"""Threads that read; they wait for the disk, so there may be more than cores."""


class Eviction(str, Enum):
    """Which expert leaves when a slot is needed."""

    LFU = "lfu"
    LRU = "lru"


class Key(NamedTuple):
    """An expert of a layer."""

    layer: int
    expert: int


@dataclass
class ExpertCounts:
    """Running totals of a store.

    Attributes:
        requests: experts that calls asked for; one that several rows of a call chose counts once.
        hits: of those, experts that were in a slot.
        reads: experts read from disk, into slots or into the whole-layer buffer.
        bytes_read: bytes of them.
        evictions: experts that left a slot.
    """

    requests: int = 0
    hits: int = 0
    reads: int = 0
    bytes_read: int = 0
    evictions: int = 0


class ExpertStore:
    """The experts of a target, or of a head. Sessions may share it, one call at a time.

    Attributes:
        counts: what was asked for and read so far.
        expert_bytes: bytes of one expert.
        num_experts: experts of the layer that has most.
        own: the slots of the budget.

    Args:
        shards: the open checkpoint.
        parts: arrays of an expert.
        pieces: for every layer with experts, every expert's bytes by part.
        budget: bytes that slots may take.
        eviction: who leaves.

    Raises:
        DecoderError: the budget does not hold one expert.
    """

    def __init__(
        self,
        shards: Shards,
        parts: Mapping[str, Part],
        pieces: Mapping[int, Sequence[Mapping[str, Sequence[Piece]]]],
        budget: int,
        eviction: Eviction = Eviction.LFU,
    ) -> None:
        self.counts = ExpertCounts()
        self.expert_bytes = sum(part.nbytes for part in parts.values())
        self.num_experts = max(len(experts) for experts in pieces.values())
        if budget < self.expert_bytes:
            raise DecoderError(
                f"an expert budget of {budget} bytes holds no expert: one takes "
                f"{self.expert_bytes} bytes; give at least that"
            )
        every = sum(len(experts) for experts in pieces.values())
        self._shards = shards
        self._parts = parts
        self._pieces = pieces
        self._eviction = eviction
        self.own = Slots(parts, min(budget // self.expert_bytes, every))
        self._whole: dict[int, Slots] = {}
        self._whole_layers = 0
        self._place: dict[Key, int] = {}
        self._free = list(range(self.own.count))
        self._uses: Counter[Key] = Counter()
        self._last: dict[Key, int] = {}
        self._clock = 0
        self._lent: list[mx.array] = []
        self._reading: list[Future[int]] = []

    @property
    def slots(self) -> int:
        """How many experts the budget holds."""
        return self.own.count

    @property
    def resident(self) -> frozenset[Key]:
        """The experts that are in slots."""
        return frozenset(self._place)

    @contextmanager
    def whole_layers(self, buffers: int = 1) -> Generator[None]:
        """Give calls buffers for all experts of a layer, filled when a layer has none.

        One is enough for layers that run one after the other; calls that go through all layers
        of a part again and again need as many as it has.
        """
        self.settle()
        self._whole_layers = buffers
        try:
            yield
        finally:
            self._lent.clear()  # of buffers that nothing writes to any more
            self._whole_layers = 0
            self._whole.clear()

    def settle(self, *arrays: mx.array) -> None:
        """Evaluate what was computed from the slots, and the given arrays with it."""
        mx.eval(*arrays, self._lent)
        self._lent.clear()

    def lend(self, computed: mx.array) -> None:
        """Keep what was computed from the slots and may be unevaluated."""
        self._lent.append(computed)

    def whole(self, layer: int) -> Slots | None:
        """A buffer with all experts of this layer, expert by slot; None outside `whole_layers`."""
        if not self._whole_layers or layer in self._whole:
            return self._whole.get(layer)
        self.settle()
        if len(self._whole) < self._whole_layers:
            buffer = Slots(self._parts, self.num_experts)
        else:
            buffer = self._whole.pop(next(iter(self._whole)))
        count = len(self._pieces[layer])
        self._read(buffer, {Key(layer, expert): expert for expert in range(count)})
        self._whole[layer] = buffer
        return buffer

    def waves(self, layer: int, experts: Sequence[int]) -> list[list[int]]:
        """The experts in as many groups as the slots need; those in slots come first."""
        here = [e for e in experts if Key(layer, e) in self._place]
        absent = [e for e in experts if Key(layer, e) not in self._place]
        order, size = here + absent, self.own.count
        return [order[at : at + size] for at in range(0, len(order), size)]

    def acquire(self, layer: int, experts: Sequence[int]) -> tuple[Slots, dict[int, int]]:
        """Have these experts in slots, no more than there are; returns each one's slot.

        Whatever was computed from the slots must have been settled. A failure leaves the slots
        it concerned empty and all others as they were.

        Raises:
            ExpertReadError: the checkpoint cannot be read (any more).
        """
        keys = [Key(layer, expert) for expert in experts]
        missing = [key for key in keys if key not in self._place]
        self._vacate(len(missing), keep=set(keys))
        places = dict(zip(missing, self._free, strict=False))
        self._read(self.own, places)
        self._free = self._free[len(places) :]
        self._place |= places
        self.counts.requests += len(keys)
        self.counts.hits += len(keys) - len(missing)
        self._clock += 1
        for key in keys:
            self._uses[key] += 1
            self._last[key] = self._clock
        return self.own, {key.expert: self._place[key] for key in keys}

    def _vacate(self, count: int, keep: set[Key]) -> None:
        """Have at least `count` empty slots."""
        leaving = count - len(self._free)
        if leaving <= 0:
            return
        candidates = sorted((key for key in self._place if key not in keep), key=self._worth)
        for key in candidates[:leaving]:
            self._free.append(self._place.pop(key))
            self.counts.evictions += 1

    def _worth(self, key: Key) -> tuple[int, ...]:
        last = (self._last[key], *key)
        return (self._uses[key], *last) if self._eviction is Eviction.LFU else last

    def _read(self, slots: Slots, places: Mapping[Key, int]) -> None:
        """Fill slots from disk, several at once; once this is over nobody writes to them.

        That holds if it is interrupted too: what runs is waited for, here or by the next call.
        """
        wait(self._reading)
        self._reading = []
        try:
            for key, slot in places.items():
                self._reading.append(_pool().submit(self._fill, slots, key, slot))
            for done in self._reading:
                self.counts.bytes_read += done.result()
                self.counts.reads += 1
        finally:
            for future in self._reading:
                future.cancel()
            wait(self._reading)
        self._reading = []

    def _fill(self, slots: Slots, key: Key, slot: int) -> int:
        """Read one expert; returns its bytes. Runs in a worker."""
        total = 0
        for part, pieces in self._pieces[key.layer][key.expert].items():
            memory = slots.memory(slot, part)
            for piece in pieces:
                total += self._shards.read(piece, memory[: piece.nbytes])
                memory = memory[piece.nbytes :]
        return total


@cache
def _pool() -> ThreadPoolExecutor:
    """The workers of every store of this process."""
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="mtp-expert-reader")
