"""A layer's routed experts, computed from slots.

The model's own expert module does the arithmetic: it gets the slots in place of its weights and
slots' numbers in place of experts', so that the products are those of experts in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mtp_decoder.experts.slots import Slots
from mtp_decoder.experts.store import ExpertStore


def stacks_of(experts: Any) -> dict[str, mx.array]:
    """The weights [E, ...] of an expert module by name.

    An `nn.Module` such as mlx-lm's `SwitchGLU` has them as parameters; any other object as its
    attributes `gate_up` [E, 2F, H] and `down` [E, H, F].
    """
    if isinstance(experts, nn.Module):
        return dict(cast("list[tuple[str, mx.array]]", tree_flatten(experts.parameters())))
    return {name: getattr(experts, name) for name in ("gate_up", "down")}


def put_stacks(experts: Any, stacks: Mapping[str, mx.array]) -> None:
    """Let an expert module compute with other weights."""
    if isinstance(experts, nn.Module):
        experts.update(cast("dict[str, Any]", tree_unflatten(list(stacks.items()))))
        return
    for name, stack in stacks.items():
        setattr(experts, name, stack)


class OffloadedExperts:
    """Stands where the model's expert module stood.

    Attributes:
        calls: how often it was used.
        store: where its experts are.
    """

    def __init__(self, experts: Any, store: ExpertStore, layer: int) -> None:
        self.calls = 0
        self.store = store
        self._experts = experts
        self._layer = layer
        put_stacks(experts, store.own.stacks)

    def __call__(self, x: mx.array, chosen: mx.array) -> mx.array:
        """Run x [..., H] through experts chosen [..., k]: [..., k, H].

        Raises:
            ExpertReadError: the checkpoint cannot be read (any more).
        """
        self.calls += 1
        store = self.store
        whole = store.whole(self._layer)
        if whole is not None:
            return self._compute(whole, x, chosen)
        store.settle(chosen)
        flat = cast("list[int]", chosen.flatten().tolist())
        waves = store.waves(self._layer, sorted(set(flat)))
        if len(waves) == 1:
            slots, places = store.acquire(self._layer, waves[0])
            return self._compute(slots, x, self._table(places, chosen)[chosen])
        return self._in_waves(waves, x, chosen, flat)

    def _in_waves(
        self, waves: Sequence[Sequence[int]], x: mx.array, chosen: mx.array, flat: Sequence[int]
    ) -> mx.array:
        """As `__call__`, the rows of a few experts after the other; each row as if alone."""
        k = chosen.shape[-1]
        rows, experts = x.reshape(-1, x.shape[-1]), chosen.flatten()
        order: list[int] = []
        results: list[mx.array] = []
        for wave in waves:
            self.store.settle()
            slots, places = self.store.acquire(self._layer, wave)
            at = [i for i, expert in enumerate(flat) if expert in places]
            order += at
            index = mx.array(at)
            which = self._table(places, chosen)[experts[index]]
            done = self._compute(slots, rows[index // k][None], which[None, :, None])
            results.append(done.reshape(len(at), -1))
        back = mx.argsort(mx.array(order))
        return mx.concatenate(results)[back].reshape(*chosen.shape, -1)

    def _table(self, places: Mapping[int, int], chosen: mx.array) -> mx.array:
        """From expert to slot; experts that are in none are never looked up."""
        table = [places.get(expert, 0) for expert in range(self.store.num_experts)]
        return mx.array(table, chosen.dtype)

    def _compute(self, slots: Slots, x: mx.array, places: mx.array) -> mx.array:
        if slots is self.store.own:
            done = self._experts(x, places)
        else:
            done = self._with_others(slots, x, places)
        self.store.lend(done)
        return done

    def _with_others(self, slots: Slots, x: mx.array, places: mx.array) -> mx.array:
        """Compute from other slots, which are not kept."""
        put_stacks(self._experts, slots.stacks)
        try:
            return self._experts(x, places)
        finally:
            put_stacks(self._experts, self.store.own.stacks)
