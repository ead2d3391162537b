"""Session: a round that fails anywhere cancels itself."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from tests.decoder.conftest import Decoding
from tests.decoder.helpers import PROMPT, STRATEGIES, Plain, PlantedError, fail, scripted
from tests.models.helpers import number

BEFORE = "the state before the round"


def _fails(session: Session, drafts: list[int] | None = None) -> None:
    before, length, history = session.state(), session.target_length, list(session.history)
    with pytest.raises(PlantedError):
        session.round(3, drafts=drafts)
    require_equal(session.state(), before, what=BEFORE)
    assert (session.target_length, session.history) == (length, history)


@pytest.mark.parametrize("name", ["window", "flash-next"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_in_the_target(
    decoding: Callable[..., Decoding], monkeypatch: pytest.MonkeyPatch, name: str, strategy: str
) -> None:
    """A round whose last layer fails leaves target and head as before it."""
    session, _, target, _ = decoding(name, rewind=strategy)
    monkeypatch.setattr(target.layers[-1], "mlp", fail)
    _fails(session)


@pytest.mark.parametrize(
    ("name", "index", "part"),
    [
        ("gdn", 0, "mlp"),
        ("gdn-mtp2", 0, "mlp"),
        ("gdn-mtp2", 1, "mlp"),
        ("flash-next", 0, "mlp"),
        ("flash-next", 0, "attention._projections"),
    ],
)
def test_in_the_head(
    decoding: Callable[..., Decoding],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    index: int,
    part: str,
) -> None:
    """A round whose head fails while drafting, at any point of a layer, leaves no trace."""
    session, _, _, head = decoding(name)
    owner: Any = head.layers[index]
    *path, attribute = part.split(".")
    for step in path:
        owner = getattr(owner, step)
    monkeypatch.setattr(owner, attribute, fail)
    _fails(session)


@pytest.mark.parametrize(("policy", "accepted"), [("draft", 3), ("target", 3), ("target", 1)])
def test_in_the_head_after_the_rewind(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    accepted: int,
) -> None:
    """A round whose head fails on a row it makes after the verify pass leaves no trace."""
    session, _, _, head = decoding("gdn", head_rows=policy)
    stream = plain("gdn").tokens(4)
    whole, calls = head.layers[0].mlp, 0

    def fail_the_fourth_time(x: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        return whole(x) if calls < 4 else fail()

    monkeypatch.setattr(head.layers[0], "mlp", fail_the_fourth_time)
    _fails(session, scripted(stream, 1, 3, accepted))


@pytest.mark.parametrize("name", ["window", "flash-next"])
def test_in_a_replay(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """A round whose replay fails in the last layer leaves no trace."""
    session, _, target, _ = decoding(name, rewind="replay")
    stream = plain(name).tokens(4)
    whole, calls = target.layers[-1].mlp, 0

    def fail_the_second_time(x: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        return whole(x) if calls < 2 else fail()

    monkeypatch.setattr(target.layers[-1], "mlp", fail_the_second_time)
    _fails(session, scripted(stream, 1, 3, 1))


@pytest.mark.parametrize("part", ["sampler", "logits_processors"])
def test_in_what_the_caller_gave(decoding: Callable[..., Decoding], part: str) -> None:
    """A round whose sampler or logits processor fails leaves no trace."""
    armed = False

    def sampler(logprobs: mx.array) -> mx.array:
        return fail() if armed else mx.argmax(logprobs, axis=-1)

    def processor(tokens: mx.array, logits: mx.array) -> mx.array:
        return fail() if armed and len(tokens) > len(PROMPT) + 1 else logits

    options: dict[str, Any] = {"sampler": sampler, "logits_processors": [processor]}
    session = decoding("flash-next", **{part: options[part]}).session
    drafts = [number(mx.argmax(session.fork().verify([]).logits[0]))]
    armed = True
    _fails(session, drafts)


def test_the_next_round(decoding: Callable[..., Decoding], monkeypatch: pytest.MonkeyPatch) -> None:
    """A session goes on after a failed round as if it had never been."""
    session, _, target, _ = decoding("flash-next")
    twin = session.fork()
    with monkeypatch.context() as patch:
        patch.setattr(target.layers[1], "mlp", fail)
        _fails(session)
    assert session.round(3).tokens == twin.round(3).tokens
    require_equal(session.state(), twin.state(), what="a session without the failed round")
