"""Session: an exception at every evaluation there is.

`mx.eval` fails at its n-th call, before or after it did its work, for every n that an operation
reaches. Caches are then as before the operation, or the session refuses to be used.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import RotatingKVCache

from mtp_conformance.exactness import require_equal
from mtp_decoder import DecoderError, Session, make_prompt_cache
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import (
    POLICIES,
    PROMPT,
    STRATEGIES,
    OtherCaches,
    Plain,
    PlantedError,
    scripted,
)

MODELS = ("window", "gdn-mtp2", "flash-next")
MOST = 40

Operation = Callable[[Session], Any]


@contextmanager
def failing(patch: pytest.MonkeyPatch, number: int, when: str) -> Generator[None]:
    """Let the evaluation of that number raise, before or after what it evaluates."""
    calls, evaluate = 0, mx.eval

    def counted(*arrays: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            raise PlantedError
        evaluate(*arrays)
        if calls == number:
            raise PlantedError

    with patch.context() as inner:
        inner.setattr(mx, "eval", counted)
        yield


def _every_failure(
    patch: pytest.MonkeyPatch, make: Callable[[], Session], operate: Operation, when: str
) -> tuple[int, int]:
    """Fail an operation at each of its evaluations; returns how often, and how often refused."""
    twin = make()
    operate(twin)
    refused = 0
    for number in range(1, MOST):
        session = make()
        before, history = session.state(), list(session.history)
        try:
            with failing(patch, number, when):
                operate(session)
        except PlantedError:
            pass
        else:
            return number - 1, refused
        assert session.history == history
        try:
            session.fork()
        except DecoderError as error:
            assert "this session is unusable" in str(error)
            refused += 1
            _refuses_everything(session)
            continue
        require_equal(session.state(), before, what="the state before the operation")
        operate(session)
        require_equal(session.state(), twin.state(), what="a session in which nothing failed")
    raise AssertionError("more evaluations than this test counts to")


def _refuses_everything(session: Session) -> None:
    uses: tuple[Callable[[], object], ...] = (
        session.round,
        session.fork,
        lambda: session.draft(2),
        lambda: session.extend([1]),
        lambda: session.prefill([1]),
    )
    for use in uses:
        with pytest.raises(DecoderError, match=r"unusable.*start another one"):
            use()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("accepted", [1, 3])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["window", "flash-next"])
def test_a_round(
    fork: Callable[..., Session],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    strategy: str,
    policy: str,
    accepted: int,
    when: str,
) -> None:
    """Wherever a round fails, the session is as before it and can make it again."""
    drafts = scripted(plain(name).tokens(5), 1, 3, accepted)
    count, refused = _every_failure(
        monkeypatch,
        lambda: fork(name, rewind=strategy, head_rows=policy),
        lambda session: session.round(drafts=drafts),
        when,
    )
    assert (count >= 4, refused) == (True, 0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", MODELS)
def test_a_prefill(zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str, when: str) -> None:
    """Wherever a prefill fails, its caches are empty again, and take the prompt later."""

    def make() -> Session:
        cache = make_prompt_cache(*zoo(name))
        return Session(*zoo(name), prefill_step_size=5, prompt_cache=cache)

    count, refused = _every_failure(monkeypatch, make, lambda s: s.prefill(PROMPT), when)
    assert (count >= 4, refused) == (True, 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_prompt_cache_of_a_failed_prefill(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A prompt cache whose first prefill failed is as it was made: another session takes it."""
    cache = make_prompt_cache(*zoo(name))
    with failing(monkeypatch, 2, "after"), pytest.raises(PlantedError):
        Session(*zoo(name), prefill_step_size=5, prompt_cache=cache).prefill(PROMPT)
    retried, fresh = Session(*zoo(name), prompt_cache=cache), Session(*zoo(name))
    for session in (retried, fresh):
        session.prefill(PROMPT)
    require_equal(retried.state(), fresh.state(), what="a session in which nothing failed")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", MODELS)
def test_more_prompt(
    fork: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    """Wherever the next turn fails, the session is as it was after the last one."""

    def make() -> Session:
        session = fork(name)
        session.round(3)
        return session

    count, refused = _every_failure(monkeypatch, make, lambda s: s.extend(PROMPT[:5]), when)
    assert (count >= 3, refused) == (True, 0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cut(
    fork: Callable[..., Session],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    when: str,
) -> None:
    """A settled round that cannot be cut makes the session unusable: there is no way back."""
    drafts = scripted(plain("flash-next").tokens(5), 1, 3, 3)

    def make() -> Session:
        session = fork("flash-next", rewind=strategy)
        session.round(drafts=drafts)
        return session

    count, refused = _every_failure(monkeypatch, make, lambda s: s.cut(2), when)
    assert count == refused > 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cancel(fork: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A cancel that fails itself makes the session unusable."""

    def operate(session: Session) -> None:
        session.verify(session.draft(3))
        with failing(monkeypatch, 1, when):
            session.cancel()

    session = fork("flash-next")
    with pytest.raises(PlantedError):
        operate(session)
    _refuses_everything(session)


def test_a_cache_that_cannot_be_rewound(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain step or a prompt that fails over such a cache makes the session unusable."""
    target = OtherCaches(zoo("window")[0], {0: RotatingKVCache(max_size=8, keep=2)})
    stepped = Session(target)
    stepped.prefill(PROMPT[:4])
    with failing(monkeypatch, 1, "after"), pytest.raises(PlantedError):
        stepped.round(0)
    _refuses_everything(stepped)
    target = OtherCaches(zoo("window")[0], {0: RotatingKVCache(max_size=8, keep=2)})
    prompted = Session(target)
    with failing(monkeypatch, 1, "after"), pytest.raises(PlantedError):
        prompted.prefill(PROMPT[:4])
    with pytest.raises(DecoderError, match="cannot be rewound; start another one"):
        prompted.prefill(PROMPT[:4])
