"""Components of mlx-lm's caches that wait for a long computation, for the builtin adapter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_lm.models.cache import ArraysCache, CacheList

from mtp_conformance.slowing import slowed

_Place = tuple[Any, str | int]
"""An object with the attribute, or the list with the index, that holds an array."""
_ROWS = ("keys", "values")
_INDEX = ("index_keys", "open_block")


def slow_down(
    layers: Sequence[Any], caches: Sequence[Any], part: str, component: str, steps: int
) -> None:
    """Replace the arrays of `component` in the caches of a part, if it is one of that part."""
    if not component.startswith(f"{part}."):
        return
    name = component.partition(".")[2]
    found = [_place(*pair, name) for pair in zip(layers, caches, strict=True)]
    places = [place for place in found if place is not None and _at(place) is not None]
    arrays = slowed([_at(place) for place in places], steps)
    for (holder, where), array in zip(places, arrays, strict=True):
        if isinstance(where, str):
            setattr(holder, where, array)
        else:
            holder[where] = array


def _at(place: _Place) -> Any:
    holder, where = place
    return getattr(holder, where) if isinstance(where, str) else holder[where]


def _place(layer: Any, cache: Any, name: str) -> _Place | None:
    """Where a cache holds a component, if it can."""
    if isinstance(cache, ArraysCache):
        return (cache.cache, layer.slots.index(name)) if name in layer.slots else None
    if isinstance(cache, CacheList) and name in (*_ROWS, *_INDEX, "pooled"):
        rows, raw, pooled = cache.caches
        if name == "pooled":
            return pooled.cache, 0
        return (raw, "keys") if name in _INDEX else (rows, name)
    return (cache, name) if name in _ROWS and hasattr(cache, name) else None
