"""Session: an exception at every evaluation, those that read an array as Python values too.

Rules, masks and processors read tokens row by row, between what they change; a save and a restore
evaluate what they write and check. Whatever fails, the session is as before, its mask included.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_logits_processors

from mtp_conformance.exactness import require_equal
from mtp_conformance.injecting import InjectedFailure, Injector
from mtp_decoder import DecoderError, Sampling, Session
from tests.decoder.conftest import Zoo
from tests.decoder.following import Grammar
from tests.decoder.helpers import PROMPT, PlantedError, fail

MOST = 40
RULES: dict[str, Sampling] = {
    "greedy": Sampling(),
    "match": Sampling(temp=0.8, seed=1),
    "rejection": Sampling(temp=0.8, seed=1, acceptance="rejection"),
}
Operation = Callable[[Session], Any]
Made = tuple[Session, Grammar]


def _session(zoo: Zoo, rule: str = "greedy", name: str = "window", **more: Any) -> Made:
    grammar = Grammar()
    session = Session(
        *zoo(name),
        sampling=RULES[rule],
        token_mask=grammar,
        logits_processors=make_logits_processors(repetition_penalty=1.2),
        **more,
    )
    session.prefill(PROMPT)
    return session, grammar


def _once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """One function at the first call, another one at the others."""
    calls = iter([first])

    def call(*given: Any) -> Any:
        return next(calls, then)(*given)

    return call


def _every_failure(make: Callable[[], Made], operate: Operation) -> int:
    """Fail an operation at each of its evaluations; returns how many there are."""
    twin, followed = make()
    operate(twin)
    for number in range(1, MOST):
        session, grammar = make()
        before, history, told = session.state(), list(session.history), list(grammar.tokens)
        injector = Injector()
        injector.arm(number)
        try:
            operate(session)
        except (InjectedFailure, DecoderError):
            pass
        finally:
            raised = injector.disarm()
        if not raised:
            return number - 1
        assert (session.history, grammar.tokens) == (history, told)
        require_equal(session.state(), before, what="the state before the operation")
        operate(session)
        assert grammar.tokens == followed.tokens
        require_equal(session.state(), twin.state(), what="a session in which nothing failed")
    raise AssertionError("more evaluations than this test counts to")


@pytest.mark.parametrize(("rule", "least"), [("greedy", 7), ("match", 7), ("rejection", 7)])
def test_a_round(zoo: Zoo, rule: str, least: int) -> None:
    """Wherever a round of the head's drafts fails, rows that were judged already are forgotten."""
    count = _every_failure(lambda: _session(zoo, rule), lambda session: session.round(3))
    assert count >= least


def test_a_turn(zoo: Zoo) -> None:
    """Wherever a next turn fails, mask and caches are after the last one."""

    def make() -> Made:
        session, grammar = _session(zoo, "match")
        session.round(2)
        return session, grammar

    assert _every_failure(make, lambda session: session.extend(PROMPT[:5])) >= 4


def test_a_turn_that_ends_in_an_interrupt(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is whole or not at all where Ctrl-C falls into waiting for what it submitted."""
    wait, raised = mx.synchronize, 0
    for number in range(1, MOST):
        session, grammar = _session(zoo, "match")
        session.round(2)
        before, history, told = session.state(), list(session.history), list(grammar.tokens)
        calls = iter(range(1, number))

        def interrupted(*given: Any, calls: Any = calls) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            wait(*given)

        monkeypatch.setattr(mx, "synchronize", interrupted)
        try:
            session.extend(PROMPT[:5])
            break
        except KeyboardInterrupt:
            raised += 1
        finally:
            monkeypatch.setattr(mx, "synchronize", wait)
        assert (session.history, grammar.tokens) == (history, told)
        require_equal(session.state(), before, what="the state before the turn")
    assert raised >= 2


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_where_caches_become_quantised(zoo: Zoo, ahead: int) -> None:
    """A round or turn that fails there leaves plain rows plain, and packs them when it is made."""
    start = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": len(PROMPT) + ahead}

    def make() -> Made:
        return _session(zoo, "match", "gdn-wide", prefill_step_size=3, **start)

    session, _ = make()
    assert "layers.1.keys_scales" not in session.state()
    session.extend(PROMPT[:5])
    assert "layers.1.keys_scales" in session.state()
    assert _every_failure(make, lambda session: session.extend(PROMPT[:5])) >= 5
    assert _every_failure(make, lambda session: session.round(2)) >= 5


def test_a_save(zoo: Zoo, tmp_path: Path) -> None:
    """Wherever a save fails, nothing is left of it: no file, not even a part of one."""
    file = tmp_path / "s"

    def make() -> Made:
        assert not list(tmp_path.iterdir()) or file.is_file()
        file.unlink(missing_ok=True)
        return _session(zoo)

    assert _every_failure(make, lambda session: session.save(file)) >= 3


def test_a_restore(zoo: Zoo, tmp_path: Path) -> None:
    """Wherever a restore fails, the session is as it was, and takes the file later."""
    saver, _ = _session(zoo)
    saver.round(2)
    saver.save(tmp_path / "s")

    def make() -> Made:
        session, grammar = _session(zoo)
        session.round(1)
        return session, grammar

    assert _every_failure(make, lambda session: session.restore(tmp_path / "s")) >= 5


def test_a_mask_that_fails_after_a_turn(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that cannot be told the first token of a turn: the turn has not been."""
    session, grammar = _session(zoo)
    session.round(2)
    before, history, told = session.state(), list(session.history), list(grammar.tokens)
    with monkeypatch.context() as patch, pytest.raises(PlantedError):
        patch.setattr(grammar, "advance", _once(fail, grammar.advance))
        session.extend(PROMPT[:5])
    assert (session.history, grammar.tokens) == (history, told)
    require_equal(session.state(), before, what="the state before the turn")
    twin, _ = _session(zoo)
    twin.round(2)
    for one in (session, twin):
        one.cut(1)
        one.extend(PROMPT[:5])
    require_equal(session.state(), twin.state(), what="a session in which nothing failed")


def test_a_mask_that_fails_in_a_restore(
    zoo: Zoo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask that cannot be told a file's tokens leaves a session that says no, until it can."""
    saver, _ = _session(zoo)
    saver.round(2)
    saver.save(tmp_path / "s")
    session, grammar = _session(zoo)
    with monkeypatch.context() as patch, pytest.raises(PlantedError):
        patch.setattr(grammar, "advance", fail)
        patch.setattr(grammar, "rewind", fail)
        session.restore(tmp_path / "s")
    with pytest.raises(DecoderError, match="unusable: taking over a saved session failed"):
        session.round(1)
    session.restore(tmp_path / "s")
    require_equal(session.state(), saver.state(), what="the saved session")
    assert grammar.tokens == saver.history[len(PROMPT) :]
