"""Session: a fork shares nothing with the session it came from."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from mtp_decoder.errors import RewindError
from mtp_decoder.state import copy_cache
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, Plain, frozen, play

MODELS = ("gdn", "window", "ple", "qsa", "flash-next", "gdn-mtp2")


@pytest.mark.parametrize("name", MODELS)
def test_the_original_goes_on(decoding: Callable[..., Decoding], name: str) -> None:
    """Rounds of the original leave a fork's state as it was."""
    session = decoding(name).session
    twin = session.fork()
    before = twin.state()
    for k in (3, 0, 2):
        session.round(k)
    require_equal(twin.state(), before, what="the fork's state when it was made")


def test_a_fork_has_no_round_to_cut(decoding: Callable[..., Decoding]) -> None:
    """The original's last round is the original's alone to cut, and stays for it to be cut."""
    session = decoding("window").session
    session.round(3)
    twin = session.fork()
    with pytest.raises(RewindError, match="cannot cut the last round"):
        twin.cut(1)
    session.cut(1)


@pytest.mark.parametrize("name", MODELS)
def test_the_fork_goes_on(decoding: Callable[..., Decoding], name: str) -> None:
    """Rounds of a fork leave every byte of the original's caches as it was."""
    session, cache, *_ = decoding(name)
    before = frozen(cache)
    twin = session.fork()
    for k in (3, 0, 2):
        twin.round(k)
    require_equal(frozen(cache), before, what="the original's caches before the fork's rounds")


@pytest.mark.parametrize("name", MODELS)
def test_both_go_the_same_way(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], name: str
) -> None:
    """A fork decodes what the original decodes, in bits."""
    stream = plain(name).tokens(8)
    session = decoding(name).session
    play(session, stream, 1, 3, 1)
    twin = session.fork()
    for one in (session, twin):
        play(one, stream, 3, 3, 2)
    require_equal(twin.state(), session.state(), what="the original")
    assert twin.history == session.history


def test_a_fork_before_the_prompt(decoding: Callable[..., Decoding]) -> None:
    """A fork of a session that has seen nothing can be prefilled by itself."""
    made = decoding("flash-next")
    empty = Session(made.target, made.head)
    twin = empty.fork()
    twin.prefill(PROMPT)
    require_equal(twin.state(), made.session.state(), what="a session of its own")
    assert empty.target_length == 0


def test_counters_start_anew(decoding: Callable[..., Decoding]) -> None:
    """A fork counts its own rounds."""
    session = decoding("gdn").session
    session.round(3)
    twin = session.fork()
    twin.round(2)
    assert (session.counters.drafted, twin.counters.drafted) == (3, 2)


@pytest.mark.parametrize("policy", ["draft", "target"])
def test_the_policy_is_kept(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], policy: str
) -> None:
    """A fork makes the head's rows as the original was last told to."""
    stream = plain("gdn").tokens(5)
    session = decoding("gdn").session
    session.decode_with(rewind="rerun", head_rows=policy)
    twin, other = session.fork(), decoding("gdn", rewind="rerun", head_rows=policy).session
    for one in (twin, other):
        play(one, stream, 1, 3, 3)
    require_equal(twin.state(), other.state(), what="a session made with that policy")


def _rows(count: int) -> tuple[mx.array, mx.array]:
    row = mx.arange(2 * count * 4, dtype=mx.float32).reshape(1, 2, count, 4) + 1
    return row, -row


def _advance(cache: Any, count: int) -> None:
    if isinstance(cache, CacheList):
        _advance(cache[0], count)
        _advance(cache[2], count)
    elif isinstance(cache, ArraysCache):
        cache[0] = _rows(count)[0]
    else:
        mx.eval(cache.update_and_fetch(*_rows(count)))


MAKERS: dict[str, Callable[[], Any]] = {
    "rows": KVCache,
    "ring": lambda: RotatingKVCache(max_size=4),
    "slots": lambda: ArraysCache(size=1),
    "pooled": lambda: CacheList(KVCache(), KVCache(), ArraysCache(size=1)),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_copied_cache(kind: str, steps: int) -> None:
    """Writing into a cache leaves every byte of its copy as it was, and the other way round."""
    original = MAKERS[kind]()
    for _ in range(5):
        _advance(original, 1)
    copy = copy_cache(original)
    before = frozen([copy])
    _advance(original, steps)
    require_equal(frozen([copy]), before, what="the copy when it was made")
    after = frozen([original])
    _advance(copy, steps + 1)
    require_equal(frozen([original]), after, what="the original before the copy went on")
