"""Every phase leaves nothing of a cache to be computed: what it began is in its own time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from mtp_decoder import Session, make_prompt_cache
from mtp_decoder.state import arrays_of
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import POLICIES, PROMPT, STRATEGIES

MODELS = ("gdn-moe", "window", "flash-next")


def pending(arrays: Iterable[mx.array]) -> list[int]:
    """Operations that each array waits for: mlx draws each as a rectangle."""
    found: list[int] = []
    for array in arrays:
        drawing = io.StringIO()
        mx.export_to_dot(drawing, array)
        found.append(drawing.getvalue().count("shape=rectangle"))
    return found


@pytest.mark.parametrize(("strategy", "policy"), list(zip(STRATEGIES, POLICIES * 2, strict=True)))
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_to_the_next_phase(zoo: Zoo, name: str, strategy: str, policy: str) -> None:
    """After prompt, draft, verify, accept and rewind caches are there, and what was given back."""
    target, head = zoo(name)
    cache = make_prompt_cache(target, head)
    session = Session(target, head, prompt_cache=cache, rewind=strategy, head_rows=policy)
    phases: dict[str, Callable[[Session], Any]] = {
        "prompt": lambda s: s.prefill(PROMPT),
        "draft": lambda s: s.draft(3),
        "verify": lambda s: s.verify(vars(s)["_open"].drafts),
        "accept": lambda s: s.accept(),
        "rewind": lambda s: s.rewind(s.accept()),
        "extend": lambda s: s.extend([5, 6]),
    }
    for phase, run in phases.items():
        given = getattr(run(session), "__dict__", {}).values()
        shown = [array for array in given if isinstance(array, mx.array)]
        assert not any(pending([*arrays_of(cache), *shown])), phase


def test_pending_is_seen() -> None:
    """Rows that wait to be computed are told from rows that are there."""
    cache = KVCache()
    cache.update_and_fetch(mx.ones((1, 1, 1, 2)), mx.ones((1, 1, 1, 2)))
    assert all(pending(arrays_of([cache])))
    mx.eval(cache.keys, cache.values)
    assert not any(pending(arrays_of([cache])))
