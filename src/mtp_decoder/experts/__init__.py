"""Routed experts on disk: read when they are needed, into slots under a byte budget.

| file | what |
|---|---|
| `shards.py` | where tensors lie in a checkpoint's safetensors, and reading pieces of them |
| `layout.py` | an expert's bytes in the checkpoints' layouts |
| `slots.py` | memory that is filled in place |
| `store.py` | which experts are in slots, and who leaves; the buffer of a whole layer |
| `offloaded.py` | what stands in a layer in place of its experts |
| `grouped.py` | rows sorted by expert |

`offload` puts all of this into a loaded model.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mtp_decoder.errors import CheckpointError, DecoderError
from mtp_decoder.experts.grouped import Grouped, Ungrouped
from mtp_decoder.experts.layout import Part, expert_tensors, pieces_of
from mtp_decoder.experts.offloaded import OffloadedExperts, stacks_of
from mtp_decoder.experts.shards import Shards
from mtp_decoder.experts.store import Eviction, ExpertCounts, ExpertStore
from mtp_decoder.target import Head, Layer, Target

__all__ = [
    "Eviction",
    "ExpertCounts",
    "ExpertStore",
    "Grouped",
    "OffloadSettings",
    "Shards",
    "Ungrouped",
    "group",
    "offload",
    "stores_of",
    "through_whole_layers",
    "whole_layers",
]

_ATTRIBUTES = ("switch_mlp", "experts")
_WHOLE_FROM = 4


@dataclass(frozen=True)
class OffloadSettings:
    """How much memory experts on disk may take.

    Attributes:
        budget: bytes of the target's slots.
        head_budget: bytes of the head's; None for as much as the target's.
        eviction: who leaves when a slot is needed.
    """

    budget: int
    head_budget: int | None = None
    eviction: Eviction = Eviction.LFU


def offload(
    target: Target, head: Head | None, shards: Shards, settings: OffloadSettings
) -> tuple[ExpertStore, ExpertStore | None]:
    """Put experts on disk in place of a loaded model's, which should not be evaluated yet.

    Args:
        target: a model whose layers have `mlp.switch_mlp` (mlx-lm) or `mlp.experts`.
        head: likewise, with a budget of its own.
        shards: the checkpoint they were loaded from.
        settings: the budgets.

    Returns:
        The target's store and the head's; None where the head has no routed expert.

    Raises:
        DecoderError: the target has no routed experts, or a budget does not hold one.
        CheckpointError: the checkpoint's experts are not the model's.
    """
    budget = settings.budget if settings.head_budget is None else settings.head_budget
    chosen = [(target.layers, False, settings.budget)]
    chosen += [] if head is None else [(head.layers, True, budget)]
    made: list[ExpertStore | None] = []
    for layers, is_head, size in chosen:  # both stores first, so that an error changes neither
        made.append(_store(layers, shards, size, settings.eviction, head=is_head))
    store = made[0]
    if store is None:
        raise DecoderError("the model has no routed experts that could be left on disk")
    for (layers, _, _), of_part in zip(chosen, made, strict=True):
        if of_part is not None:
            _install(layers, of_part)
    return store, made[1] if head is not None else None


def group(layers: Sequence[Layer], *, sort: bool) -> None:
    """Let the routed experts of these layers see rows sorted by expert, or never sort them."""
    for index in _with_experts(layers):
        block, name = _place(layers[index])
        wrap = Grouped if sort else Ungrouped
        setattr(block, name, wrap(getattr(block, name)))


def stores_of(layers: Sequence[Layer]) -> list[ExpertStore]:
    """The stores that layers read experts from; none where all are in memory."""
    found = [_offloaded(layer) for layer in layers]
    return list(dict.fromkeys(experts.store for experts in found if experts is not None))


def through_whole_layers(layers: Sequence[Layer], tokens: int) -> bool:
    """Whether so many prompt tokens should go through buffers of whole layers.

    From a quarter as many tokens as a layer has experts; fewer meet too few of them.
    """
    stores = stores_of(layers)
    return any(_WHOLE_FROM * tokens >= store.num_experts for store in stores)


@contextmanager
def whole_layers(layers: Sequence[Layer], *, at_once: bool = False) -> Generator[None]:
    """Let layers read all of their experts, into one buffer that they use in turn.

    Or into one each, if all layers are run chunk by chunk (`at_once`).
    """
    with ExitStack() as stack:
        for store in stores_of(layers):
            stack.enter_context(store.whole_layers(len(layers) if at_once else 1))
        yield


def _with_experts(layers: Sequence[Layer]) -> list[int]:
    return [index for index, layer in enumerate(layers) if _place(layer)[1]]


def _place(layer: Any) -> tuple[Any, str]:
    """The object that holds a layer's routed experts, and under which name; "" for none."""
    block = getattr(getattr(layer, "wrapped", layer), "mlp", None)
    return block, next((name for name in _ATTRIBUTES if hasattr(block, name)), "")


def _offloaded(layer: Any) -> OffloadedExperts | None:
    block, name = _place(layer)
    experts = getattr(block, name) if name else None
    while isinstance(experts, Grouped):
        experts = experts.experts
    return experts if isinstance(experts, OffloadedExperts) else None


def _store(
    layers: Sequence[Layer], shards: Shards, budget: int, eviction: Eviction, *, head: bool
) -> ExpertStore | None:
    indices = _with_experts(layers)
    if not indices:
        return None
    found = {index: stacks_of(getattr(*_place(layers[index]))) for index in indices}
    parts = _alike({index: _parts_of(stacks) for index, stacks in found.items()})
    tensors = expert_tensors(shards, head=head)
    pieces = {
        index: pieces_of(
            tensors.get(index, {}),
            parts,
            next(iter(stacks.values())).shape[0],
            f"{'head ' if head else ''}layer {index}",
        )
        for index, stacks in found.items()
    }
    return ExpertStore(shards, parts, pieces, budget, eviction)


def _parts_of(stacks: Mapping[str, mx.array]) -> dict[str, Part]:
    return {name: Part(stack.shape[1:], stack.dtype) for name, stack in stacks.items()}


def _alike(layers: Mapping[int, dict[str, Part]]) -> dict[str, Part]:
    """The parts of an expert, which all layers must share: any slot takes an expert of any layer.

    Raises:
        CheckpointError: names two layers whose experts differ, and the part.
    """
    first, due = next(iter(layers.items()))
    for index, parts in layers.items():
        for name in sorted(parts.keys() | due.keys()):
            if parts.get(name) != due.get(name):
                raise CheckpointError(
                    f"experts of layers {first} and {index} differ in {name}, as with other bits "
                    "of quantisation; offload needs those of all layers alike"
                )
    return due


def _install(layers: Sequence[Layer], store: ExpertStore) -> None:
    for index in _with_experts(layers):
        block, name = _place(layers[index])
        setattr(block, name, OffloadedExperts(getattr(block, name), store, index))
