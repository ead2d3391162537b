"""Filling memory past the frontier: what is in use stays, and whatever is not is filled."""

from typing import Any

import pytest
from mlx_lm.models.cache import ArraysCache

from mtp_conformance.adapters.dead_rows import fill_dead_rows
from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, make_prompt_cache
from mtp_decoder.state import arrays_of
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

POISON = 2.0**13


@pytest.mark.parametrize(
    ("name", "options"),
    [("attn", {}), ("window", {}), ("qsa", {}), ("gdn-wide", {"kv_bits": 8, "kv_group_size": 32})],
)
@pytest.mark.parametrize("length", [3, len(PROMPT)])
def test_fills_what_is_not_in_use(
    zoo: Zoo, name: str, options: dict[str, Any], length: int
) -> None:
    """Every buffer with rows to spare has the number in them, and the state is as before."""
    session = Session(*zoo(name), **options)
    session.prefill(PROMPT[:length])
    session.round(drafts=[1, 2, 3])
    before, caches = session.state(), [*session._caches, *session._head_caches]  # pyright: ignore[reportPrivateUsage]
    buffers = arrays_of([c for c in caches if not isinstance(c, ArraysCache)])
    spare = sum(array.ndim == 4 and array.shape[2] >= 256 for array in buffers)
    assert fill_dead_rows(caches, POISON) >= spare > 0
    require_equal(session.state(), before, what="the state before")
    buffers = arrays_of([c for c in caches if not isinstance(c, ArraysCache)])
    ends = [array[:, :, -1].max().item() for array in buffers if array.shape[2:3] >= (256,)]
    assert ends == [POISON] * spare


def test_nothing_to_fill(zoo: Zoo) -> None:
    """Caches that hold nothing have nothing to spare."""
    assert fill_dead_rows(make_prompt_cache(*zoo("qsa")), POISON) == 0
