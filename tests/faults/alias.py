"""Alias: a reference is kept where a copy is due."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from mtp_decoder import session, state
from tests.faults.fault import Claim, Family, Fault, Shot, one_round, places, shot


def _shared_container(patch: pytest.MonkeyPatch) -> None:
    """A fork has the very list of arrays of the session it came from."""
    copy_cache = session.copy_cache

    def faulty(cache: Any) -> Any:
        twin = copy_cache(cache)
        if isinstance(cache, ArraysCache):
            twin.cache = cache.cache
        return twin

    patch.setattr(session, "copy_cache", faulty)


def _shared_arrays(patch: pytest.MonkeyPatch) -> None:
    """A fork has the arrays themselves, which keys and values are written into."""
    copy = state._copy
    patch.setattr(
        state, "_copy", lambda value: value if isinstance(value, mx.array) else copy(value)
    )


def _forgets_ngram(patch: pytest.MonkeyPatch) -> None:
    """A fork copies keys, values and recurrence, and starts the n-gram history anew."""
    copy_cache = session.copy_cache

    def faulty(cache: Any) -> Any:
        twin = copy_cache(cache)
        if isinstance(cache, ArraysCache) and len(cache.cache) > 2:
            twin.cache[2] = None
        return twin

    patch.setattr(session, "copy_cache", faulty)


def _fault(
    name: str,
    kind: str,
    ids: tuple[str, ...],
    invariant: str,
    apply: Any,
    breaks: Any,
    *shots: Shot,
) -> Fault:
    return Fault(
        id=name,
        family=Family.ALIAS,
        kind=kind,
        ids=ids,
        invariant=invariant,
        claim=Claim.STATE if breaks else Claim.ANY,
        shots=shots,
        apply=apply,
        breaks=breaks,
    )


FAULTS = (
    _fault(
        "fork-shares-its-list",
        "L",
        ("L11",),
        "I9",
        _shared_container,
        places("layers", range(6), "conv", "recurrent", "ngram", "ple_conv"),
        one_round("window"),
        shot("lifecycle.fork.as-if-alone", "ple"),
    ),
    _fault(
        "fork-shares-its-arrays",
        "L",
        ("L12",),
        "I9",
        _shared_arrays,
        places("layers", range(6), "keys", "values", "offset"),
        shot("lifecycle.fork.as-if-alone", "attn"),
        shot("lifecycle.fork.as-if-alone", "window"),
    ),
    _fault(
        "fork-forgets-the-ngrams",
        "P",
        ("P3",),
        "I9",
        _forgets_ngram,
        places("layers", (1,), "ngram"),
        shot("lifecycle.fork.as-if-alone", "ple"),
        shot("lifecycle.fork.as-if-alone", "flash-next"),
    ),
)
