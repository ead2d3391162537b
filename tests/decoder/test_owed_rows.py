"""Rows of accepted drafts that wait for the head's pass over the next round's first draft."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import (
    CacheMismatchError,
    DecoderError,
    Session,
    Stops,
    StreakFallback,
    emit,
    make_prompt_cache,
)
from mtp_decoder.drafting import Drafter
from mtp_decoder.state import arrays_of
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import (
    POLICIES,
    PROMPT,
    Plain,
    PlantedError,
    Source,
    fail,
    scripted,
)
from tests.decoder.test_everything_evaluated import pending

MODELS = ("attn", "gdn-mtp2", "qsa", "flash-next")
ROUNDS = ((3, 3), (3, 3), (2, 1), (1, 1), (4, 0), (0, 0), (4, 4), (0, 0), (1, 1), (2, 2))
"""Drafts, and how many of them are right."""
WAIT = "rounds that left nothing to the next"
Fork = Callable[..., Session]


def _play(session: Session, run: Plain, rounds: Any, *, more: bool, emitted: int = 1) -> int:
    for k, accepted in rounds:
        stream = run.tokens(emitted + accepted + 1)
        session.round(drafts=scripted(stream, emitted, k, accepted), more=more)
        emitted += accepted + 1
    return emitted


def _owes(session: Session) -> bool:
    drafter: Any = vars(session)["_drafter"]
    return bool(drafter.owes)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_bits(fork: Fork, plain: Callable[..., Plain], name: str, policy: str) -> None:
    """After any number of rounds every array is as of rounds that left nothing."""
    run, owing = plain(name), 0
    for count in range(1, len(ROUNDS) + 1):
        one, other = (fork(name, head_rows=policy) for _ in range(2))
        _play(one, run, ROUNDS[:count], more=True)
        owing += _owes(one)
        _play(other, run, ROUNDS[:count], more=False)
        assert not _owes(other)
        require_equal(one.state(), other.state(), what=WAIT)
        assert not _owes(one)
    assert owing > 3


@pytest.mark.parametrize("policy", POLICIES)
def test_bits_row_by_row(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], policy: str
) -> None:
    """Likewise where rows are computed one by one: what is owed is not joined with a draft."""
    states = list[dict[str, mx.array]]()
    for more in (True, False):
        session = decoding("flash-next", head_rows=policy, row_exact=True).session
        _play(session, plain("flash-next"), ROUNDS, more=more)
        states.append(session.state())
    require_equal(states[0], states[1], what=WAIT)


def test_fewer_passes(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A round whose drafts all stood costs the head no pass of its own."""
    passes, rounds = list[int](), [(3, 3)] * 4
    for more in (True, False):
        session, _, _, head = decoding("attn")
        whole, rows = type(head).__call__, list[int]()

        def counted(self: Any, hidden: mx.array, tokens: mx.array, cache: Any) -> Any:
            rows.append(tokens.shape[1])  # noqa: B023
            return whole(self, hidden, tokens, cache)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(type(head), "__call__", counted)
            _play(session, plain("attn"), rounds, more=more)
            session.land()
        passes.append(len(rows))
        assert sum(rows) == 16
    assert passes == [4 * 3 + 1, 4 * 4]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("part", ["head", "target"])
def test_a_round_that_fails(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    part: str,
) -> None:
    """Cancelled after it took over what was owed, a round leaves it owed, and all goes on."""
    session, _, target, head = decoding("qsa", head_rows=policy)
    other, run = decoding("qsa", head_rows=policy).session, plain("qsa")
    emitted = _play(session, run, ROUNDS[:2], more=True)
    assert _owes(session)
    with monkeypatch.context() as patch:
        patch.setattr((head if part == "head" else target).layers[0], "mlp", fail)
        with pytest.raises(PlantedError):
            session.round(2, more=True)
    assert _owes(session)
    _play(other, run, ROUNDS[:2], more=False)
    require_equal(session.fork().state(), other.state(), what=WAIT)
    _play(session, run, ROUNDS[2:4], more=True, emitted=emitted)
    _play(other, run, ROUNDS[2:4], more=False, emitted=emitted)
    require_equal(session.state(), other.state(), what=WAIT)


def test_rows_that_cannot_be_made(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the pass over what is owed fails, it stays owed and can be asked for again."""
    session, _, _, head = decoding("gdn-mtp2")
    other, run = decoding("gdn-mtp2").session, plain("gdn-mtp2")
    _play(session, run, ROUNDS[:1], more=True)
    _play(other, run, ROUNDS[:1], more=False)
    with monkeypatch.context() as patch:
        patch.setattr(head.layers[1], "mlp", fail)
        with pytest.raises(PlantedError):
            session.state()
    assert _owes(session)
    require_equal(session.state(), other.state(), what=WAIT)


@pytest.mark.parametrize("name", MODELS)
def test_a_round_after_rows_that_could_not_be_made(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """What a failed pass over owed rows left in the caches is cut by the round that makes them."""
    session, _, _, head = decoding(name)
    other, run = decoding(name).session, plain(name)
    emitted = _play(session, run, ROUNDS[:1], more=True)
    _play(other, run, ROUNDS[:1], more=False)
    with monkeypatch.context() as patch:
        patch.setattr(head.layers[-1], "mlp", fail)
        with pytest.raises(PlantedError):
            session.land()
    _play(session, run, ROUNDS[1:3], more=True, emitted=emitted)
    _play(other, run, ROUNDS[1:3], more=False, emitted=emitted)
    require_equal(session.state(), other.state(), what=WAIT)


@pytest.mark.parametrize("policy", POLICIES)
def test_other_uses_pay_first(
    fork: Fork, plain: Callable[..., Plain], tmp_path: Path, policy: str
) -> None:
    """A file and a next turn hold the rows that were owed."""
    one, other = (fork("flash-next", head_rows=policy) for _ in range(2))
    _play(one, plain("flash-next"), [(3, 3)], more=True)
    _play(other, plain("flash-next"), [(3, 3)], more=False)
    assert _owes(one)
    one.save(tmp_path / "owed")
    restored = fork("flash-next")
    restored.restore(tmp_path / "owed")
    require_equal(restored.state(), other.state(), what=WAIT)
    one = fork("flash-next", head_rows=policy)
    _play(one, plain("flash-next"), [(3, 3)], more=True)
    assert one.extend(PROMPT[:5]).tokens == other.extend(PROMPT[:5]).tokens
    require_equal(one.state(), other.state(), what=WAIT)


def test_a_policy_that_is_told_costs_owes_nothing(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """Each round of a policy that is told what it cost makes its own rows."""
    run, session = plain("attn"), Session(*zoo("attn"))
    owed = list[bool]()
    emitted = emit(
        session,
        PROMPT,
        num_draft_tokens=3,
        max_tokens=17,
        draft_source=Source(run.tokens(20)),
        policy=StreakFallback(),
        on_round=lambda _: owed.append(_owes(session)),
    )
    assert [token for token, *_ in emitted] == run.tokens(17)
    assert owed == [False] * 4


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_a_cut(fork: Fork, plain: Callable[..., Plain], policy: str, accepted: int) -> None:
    """A round cut to fewer tokens owes nothing, and is as one that accepted so many."""
    one, other = (fork("flash-next", head_rows=policy) for _ in range(2))
    run = plain("flash-next")
    _play(one, run, [(3, 3)], more=True)
    one.cut(accepted + 1)
    _play(other, run, [(3, accepted)], more=False)
    state, due = one.state(), other.state()
    require_equal(state, due, what="a round with so many accepted")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["attn", "flash-next"])
@pytest.mark.parametrize("stop", [4, 5, 8])
def test_generation_ends(
    zoo: Zoo, plain: Callable[..., Plain], name: str, policy: str, stop: int
) -> None:
    """Wherever a stream of accepts stops, the given prompt cache has every row."""
    run, (target, head) = plain(name), zoo(name)
    states = list[dict[str, mx.array]]()
    for depth in (None, StreakFallback()):  # a policy is told what each round costs by itself
        cache = make_prompt_cache(target, head)
        session = Session(target, head, prompt_cache=cache, head_rows=policy)
        drafts = Source(run.tokens(20))
        ends = Stops(stop_sequences=[run.tokens(stop)[-3:]])
        emitted = emit(
            session, PROMPT, num_draft_tokens=3, draft_source=drafts, stops=ends, policy=depth
        )
        assert [token for token, *_ in emitted] == run.tokens(stop)
        assert pending(arrays_of(cache)) == 0
        states.append(Session(target, head, prompt_cache=cache).state())
    require_equal(states[0], states[1], what=WAIT)


def test_a_budget_owes_nothing(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """The round that fills the budget leaves nothing to a next one."""
    run, session = plain("attn"), Session(*zoo("attn"))
    owed = list[bool]()
    emitted = emit(
        session,
        PROMPT,
        num_draft_tokens=3,
        max_tokens=9,
        draft_source=Source(run.tokens(20)),
        on_round=lambda _: owed.append(_owes(session)),
    )
    assert [token for token, *_ in emitted] == run.tokens(9)
    assert owed == [True, False]


def test_quantised_rows_do_not_wait(zoo: Zoo) -> None:
    """Where rows may be quantised by the next round, nothing is left to it."""
    session = Session(*zoo("gdn-wide"), kv_bits=8, kv_group_size=32, quantized_kv_start=15)
    session.prefill(PROMPT)
    stream = Plain(zoo("gdn-wide")[0]).tokens(3)
    session.round(drafts=stream[1:2], more=True)
    assert not _owes(session)


def test_time(decoding: Callable[..., Decoding], plain: Callable[..., Plain]) -> None:
    """Rows that nobody's draft took along are charged to `draft`; with none owed, nothing is."""
    session = decoding("attn").session
    _play(session, plain("attn"), [(2, 2)], more=True)
    before = session.counters.seconds["draft"]
    times = iter([10.0, 13.0])
    session.counters.clock = lambda: next(times)
    session.land()
    session.land()
    assert session.counters.seconds["draft"] == before + 3


@pytest.mark.parametrize("policy", POLICIES)
def test_an_interrupt_at_every_line(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], policy: str
) -> None:
    """Wherever Ctrl-C falls in a round that takes over what is owed, its state is known."""
    run, rounds, more = plain("attn"), ((2, 2), (2, 2)), True
    states = dict[int, dict[str, mx.array]]()
    for count in range(3):
        session = decoding("attn", head_rows=policy).session
        _play(session, run, rounds[:count], more=False)
        states[len(session.history)] = session.state()
    lines = number = 0
    while number <= lines:
        session = decoding("attn", head_rows=policy).session
        emitted, seen = _play(session, run, rounds[:1], more=more), 0

        def interrupt(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal seen
            if not frame.f_code.co_filename.endswith(("session.py", "drafting.py")):
                return None
            if event == "line" and frame.f_code.co_name not in ("cancel", "go_back"):
                seen += 1
                if seen == number:  # noqa: B023
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return interrupt

        sys.settrace(interrupt)
        try:
            _play(session, run, rounds[1:], more=more, emitted=emitted)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        lines = max(lines, seen)
        number += 1
        due = states[len(session.history)]
        require_equal(session.state(), due, what=f"rounds that were whole, at line {number}")
    assert lines > 60


def test_a_close_that_fails_once(
    zoo: Zoo, plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed behind a full accept, a stream makes the row even if Ctrl-C falls into that pass."""
    run, (target, head) = plain("attn"), zoo("attn")
    cache = make_prompt_cache(target, head)
    session = Session(target, head, prompt_cache=cache)
    emitted = emit(session, PROMPT, num_draft_tokens=2, draft_source=Source(run.tokens(20)))
    assert [next(emitted)[0] for _ in range(4)] == run.tokens(4)
    assert _owes(session)
    whole, calls = type(head).__call__, 0

    def interrupted(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(head), "__call__", interrupted)
        emitted.close()
    other = Session(target, head)
    other.prefill(PROMPT)
    _play(other, run, [(2, 2)], more=False)
    state = Session(target, head, prompt_cache=cache).state()
    require_equal(state, other.state(), what=WAIT)


@pytest.mark.parametrize(("policy", "taken"), [("draft", 4), ("target", 2)])
def test_a_cut_that_is_interrupted(
    zoo: Zoo,
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    taken: int,
) -> None:
    """A cut that ends half-way leaves caches that no other session takes for whole ones.

    The target is cut by then, the head is not: were its row still owed, the lengths would agree.
    """
    run, (target, head) = plain("attn"), zoo("attn")
    cache = make_prompt_cache(target, head)
    session = Session(target, head, prompt_cache=cache, head_rows=policy)
    source = Source(run.tokens(20))
    emitted = emit(session, PROMPT, num_draft_tokens=3, draft_source=source)
    assert [next(emitted)[0] for _ in range(taken)] == run.tokens(taken)
    assert _owes(session)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Drafter, "settle", interrupted)
        emitted.close()
    with pytest.raises(CacheMismatchError):
        Session(target, head, prompt_cache=cache)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_draft_by_hand_that_fails(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
) -> None:
    """Drafting that fails is undone at once, what was owed stays owed, and a round may follow."""
    session, _, _, head = decoding("attn", head_rows=policy)
    other, run = decoding("attn", head_rows=policy).session, plain("attn")
    emitted = _play(session, run, [(2, 2)], more=True)
    with monkeypatch.context() as patch:
        patch.setattr(head.layers[0], "mlp", fail)
        with pytest.raises(PlantedError):
            session.draft(2)
    assert _owes(session)
    session.verify([])
    session.rewind(session.accept())
    _play(other, run, [(2, 2), (0, 0)], more=False)
    assert emitted + 1 == len(session.history) - len(PROMPT)
    require_equal(session.state(), other.state(), what=WAIT)


def test_an_unusable_session_owes_nothing(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a cancel failed, the session says so, whatever rows it had left to make."""
    session, _, target, _ = decoding("attn")
    _play(session, plain("attn"), [(2, 2)], more=True)
    monkeypatch.setattr(target, "logits", fail)
    monkeypatch.setattr("mtp_decoder.window.Window.rewind", fail)
    with pytest.raises(PlantedError):
        session.round(2, more=True)
    with pytest.raises(DecoderError, match="unusable: cancelling a round failed half-way"):
        session.fork()


def test_what_a_source_was_given_stays(zoo: Zoo, plain: Callable[..., Plain]) -> None:
    """A draft source may keep the tokens it was shown: no later round changes them."""
    kept = list[Any]()

    def source(history: Any, k: int) -> list[int]:
        del k
        kept.append(history)
        return []

    emitted = emit(
        Session(*zoo("attn")), PROMPT, num_draft_tokens=2, max_tokens=4, draft_source=source
    )
    assert [token for token, *_ in emitted] == plain("attn").tokens(4)
    assert kept == [[*PROMPT, *plain("attn").tokens(count)] for count in (1, 2, 3)]
