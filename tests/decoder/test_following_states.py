"""Token masks and processors with a state: after every round it is the emitted tokens'."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.sample_utils import make_logits_processors

from mtp_conformance.exactness import require_equal
from mtp_decoder import DecoderError, Sampling, Session, emit, generate_step
from mtp_decoder.window import Window
from tests.decoder.conftest import Zoo
from tests.decoder.following import Budget, Grammar
from tests.decoder.helpers import PROMPT, STRATEGIES, PlantedError, Source, fail
from tests.models.helpers import number

COUNT = 14
RULES: dict[str, Sampling] = {
    "greedy": Sampling(),
    "match": Sampling(temp=0.8, seed=1),
    "rejection": Sampling(temp=0.8, seed=1, acceptance="rejection"),
}
FORCED = 33


def _emitted(session: Session) -> list[int]:
    return session.history[len(PROMPT) :]


def _without_drafts(zoo: Zoo, rule: str) -> list[int]:
    session, _ = _session(zoo, rule)
    return [t for t, *_ in emit(session, PROMPT, num_draft_tokens=0, max_tokens=COUNT)]


@pytest.fixture(scope="module")
def legal(zoo: Zoo) -> dict[str, list[int]]:
    """Tokens of K=0 under the grammar, by rule."""
    return {rule: _without_drafts(zoo, rule) for rule in RULES}


def _session(zoo: Zoo, rule: str, **options: Any) -> tuple[Session, Grammar]:
    grammar = Grammar()
    options = {"sampling": RULES[rule], "token_mask": grammar, **options}
    return Session(*zoo("flash-next"), **options), grammar


def test_the_grammar_bites(zoo: Zoo, legal: dict[str, list[int]]) -> None:
    """The mask of these tests changes what is emitted, and every token is legal."""
    free = generate_step(PROMPT, *zoo("flash-next"), num_draft_tokens=0, max_tokens=COUNT)
    assert [token for token, *_ in free] != legal["greedy"]
    replayed = Grammar()
    for token in legal["greedy"]:
        replayed.advance(token)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rule", ["greedy", "match"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_tokens(zoo: Zoo, legal: dict[str, list[int]], k: int, rule: str, strategy: str) -> None:
    """Under a token mask the tokens with drafts are those without."""
    session, grammar = _session(zoo, rule, rewind=strategy)
    source = Source(legal[rule], wrong=(2, 3, 7))
    emitted = emit(session, PROMPT, num_draft_tokens=k, max_tokens=COUNT, draft_source=source)
    assert [token for token, *_ in emitted] == legal[rule]
    assert grammar.tokens == legal[rule]


@pytest.mark.parametrize("rule", RULES)
def test_after_every_round(zoo: Zoo, legal: dict[str, list[int]], rule: str) -> None:
    """After every round a mask is where the emitted tokens put it, and was told no others."""
    session, grammar = _session(zoo, rule)
    session.prefill(PROMPT)
    for k in (3, 1, 4, 0, 2):
        at = len(_emitted(session))
        drafts = [*legal[rule][at : at + k - 1], 256][:k]
        session.round(drafts=drafts)
        assert grammar.tokens == _emitted(session)
    assert grammar.log == [("advance", token) for token in _emitted(session)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stage", ["draft", "verify", "accept", "accept twice"])
def test_cancelled(zoo: Zoo, legal: dict[str, list[int]], stage: str, rule: str) -> None:
    """A round cancelled at any stage leaves the mask where it was before the round."""
    session, grammar = _session(zoo, rule)
    session.prefill(PROMPT)
    before = list(grammar.tokens)
    drafts = session.inject(legal[rule][1:4])
    if stage != "draft":
        session.verify(drafts)
    for _ in range({"accept": 1, "accept twice": 2}.get(stage, 0)):
        session.accept()
    session.cancel()
    assert grammar.tokens == before
    session.round(drafts=drafts)
    assert grammar.tokens == _emitted(session)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("budget", range(1, 8))
def test_a_budget_inside_a_block(
    zoo: Zoo, legal: dict[str, list[int]], budget: int, rule: str
) -> None:
    """Decoding that ends inside a block leaves the mask at the last token handed out."""
    session, grammar = _session(zoo, rule)
    source = Source(legal[rule])
    emitted = emit(session, PROMPT, num_draft_tokens=4, max_tokens=budget, draft_source=source)
    assert [token for token, *_ in emitted] == grammar.tokens == _emitted(session)
    assert len(grammar.tokens) == budget


@pytest.mark.parametrize("index", range(1, 8))
def test_a_stop_inside_a_block(zoo: Zoo, legal: dict[str, list[int]], index: int) -> None:
    """A stop inside an accepted block takes the mask back to it, and decoding goes on there."""
    session, grammar = _session(zoo, "match")
    stop = tuple(legal["match"][index - 1 : index + 1])
    source = Source(legal["match"])
    made = list(emit(session, PROMPT, num_draft_tokens=5, stops=[stop], draft_source=source))
    assert grammar.tokens == [token for token, *_ in made] == legal["match"][: len(made)]
    while len(_emitted(session)) < COUNT:
        session.round(2)
        assert grammar.tokens == _emitted(session)
    assert _emitted(session)[:COUNT] == legal["match"]


@pytest.mark.parametrize("taken", range(1, 7))
def test_a_consumer_that_leaves(zoo: Zoo, legal: dict[str, list[int]], taken: int) -> None:
    """A consumer that leaves inside a block leaves the mask at the token it took last."""
    session, grammar = _session(zoo, "greedy")
    emitted = emit(session, PROMPT, num_draft_tokens=5, draft_source=Source(legal["greedy"]))
    tokens = [token for token, *_ in islice(emitted, taken)]
    emitted.close()
    assert grammar.tokens == tokens


def test_a_fork(zoo: Zoo, legal: dict[str, list[int]]) -> None:
    """A fork's mask goes its own way, and the original's stays."""
    session, grammar = _session(zoo, "greedy")
    session.prefill(PROMPT)
    session.round(drafts=legal["greedy"][1:3])
    before = list(grammar.tokens)
    twin = session.fork()
    for _ in range(5):
        twin.round(2)
    assert grammar.tokens == before
    assert _emitted(twin)[:8] == legal["greedy"][:8]
    while len(_emitted(session)) < COUNT:
        session.round(1)
    assert _emitted(session)[:COUNT] == legal["greedy"]


def _prefilled(zoo: Zoo) -> tuple[Session, Grammar, dict[str, mx.array]]:
    session, grammar = _session(zoo, "greedy")
    session.prefill(PROMPT)
    return session, grammar, session.state()


@pytest.mark.parametrize("row", [0, 1, 2, 3])
@pytest.mark.parametrize("part", ["allowed", "advance"])
def test_a_mask_that_fails(
    zoo: Zoo, legal: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch, part: str, row: int
) -> None:
    """A round in which the mask fails at any row leaves caches and mask as before it."""
    session, grammar, state = _prefilled(zoo)
    history, tokens = list(session.history), list(grammar.tokens)
    whole: Callable[..., Any] = getattr(grammar, part)
    calls = 0

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return fail() if calls > row else whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(grammar, part, failing)
        with pytest.raises(PlantedError):
            session.round(drafts=legal["greedy"][1:4])
    assert (session.history, grammar.tokens, session.counters.rounds) == (history, tokens, 0)
    require_equal(session.state(), state, what="the state before the round")
    assert session.round(drafts=legal["greedy"][1:4]).tokens == tuple(legal["greedy"][1:5])


def fail_once(whole: Callable[..., None]) -> Callable[..., None]:
    """Fail the first time, and do as the whole one from then on."""
    calls = 0

    def failing(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        return fail() if calls == 1 else whole(*arguments)

    return failing


def test_a_rewind_that_fails(
    zoo: Zoo, legal: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that fails in the rewind takes the mask back as well."""
    session, grammar, _ = _prefilled(zoo)
    tokens = list(grammar.tokens)
    with monkeypatch.context() as patch:
        patch.setattr(Window, "rewind", fail_once(Window.rewind))
        with pytest.raises(PlantedError):
            session.round(drafts=legal["greedy"][1:4])
    assert grammar.tokens == tokens


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("after", range(1, 7))
def test_a_forced_token(zoo: Zoo, k: int, after: int) -> None:
    """A processor that forces a token does so at any index of a block, whatever K is."""

    def run(k: int, source: Source | None = None) -> list[int]:
        budget = Budget(after, FORCED)
        emitted = generate_step(
            PROMPT,
            *zoo("ple"),
            num_draft_tokens=k,
            max_tokens=COUNT,
            logits_processors=[budget],
            draft_source=source,
        )
        tokens = [token for token, *_ in emitted]
        assert budget.tokens == tokens
        return tokens

    expected = run(0)
    assert expected.index(FORCED) == after
    assert run(k, Source(expected, wrong=(4, 9))) == expected


@pytest.mark.parametrize("rule", ["greedy", "match"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_repetition_penalty(zoo: Zoo, k: int, rule: str) -> None:
    """mlx-lm's own penalty has the effect it has without drafts, token by token."""
    sampling = replace(RULES[rule], temp=0.2 if rule == "match" else 0.0)

    def run(k: int, penalty: float, source: Source | None = None) -> list[int]:
        session = Session(
            *zoo("ple"),
            sampling=sampling,
            logits_processors=make_logits_processors(
                repetition_penalty=penalty, repetition_context_size=8
            ),
        )
        emitted = emit(session, PROMPT, num_draft_tokens=k, max_tokens=20, draft_source=source)
        return [token for token, *_ in emitted]

    expected = run(0, 1.8)
    assert expected != run(0, 1.0)
    assert run(k, 1.8, Source(expected, wrong=(3, 4, 11))) == expected


class Odd(Grammar):
    """Gives another answer than a mask."""

    def __init__(self, answer: mx.array) -> None:
        super().__init__()
        self.answer = answer

    def allowed(self) -> mx.array:
        """That answer."""
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (mx.zeros(260, mx.bool_), "the token mask allows no token: let it allow an end of text"),
        (mx.ones(259, mx.bool_), r"a token mask is bool \[260\], not .*bool.* \(259,\)"),
        (mx.ones(260), r"a token mask is bool \[260\], not .*float32 \(260,\)"),
    ],
)
def test_no_mask(zoo: Zoo, answer: mx.array, message: str) -> None:
    """A mask of another shape or type, or one that allows nothing, is refused by name."""
    session = Session(*zoo("gdn"), token_mask=Odd(answer))
    with pytest.raises(DecoderError, match=message):
        session.prefill(PROMPT)


def test_in_order(zoo: Zoo) -> None:
    """The mask has the last word: no processor brings a forbidden token back."""

    def push(tokens: mx.array, logits: mx.array) -> mx.array:
        return mx.where(mx.arange(260) == 7, 1000.0, logits)

    grammar = Grammar()
    session = Session(*zoo("gdn"), token_mask=grammar, logits_processors=[push])
    assert session.prefill(PROMPT).tokens[0] % 2 == 0
    assert number(grammar.allowed().sum()) == 130


def test_the_followers_follow(zoo: Zoo) -> None:
    """Mask and processor follow one session side by side."""
    even = Grammar()
    follower = Budget(99, FORCED)
    session = Session(*zoo("gdn-agree"), token_mask=even, logits_processors=[follower])
    session.prefill(PROMPT)
    for _ in range(6):
        session.round(3)
        assert even.tokens == follower.tokens == _emitted(session)


def test_a_restored_session(zoo: Zoo, tmp_path: Path) -> None:
    """A mask of a session that is restored has been told the emitted tokens, not the prompt."""
    original, grammar = _session(zoo, "greedy")
    original.prefill(PROMPT)
    original.round(2)
    original.save(tmp_path / "s")
    restored, fresh = _session(zoo, "greedy")
    restored.restore(tmp_path / "s")
    restored.round(2)
    original.round(2)
    assert fresh.tokens == grammar.tokens == _emitted(original)


def test_a_next_turn(zoo: Zoo) -> None:
    """After a next turn a mask starts anew: its tokens are those emitted since."""
    session, grammar = _session(zoo, "greedy")
    session.prefill(PROMPT)
    session.round(2)
    turn = [7, 8]
    before = len(session.history)
    session.extend(turn)
    session.round(2)
    assert grammar.tokens == session.history[before + len(turn) :]


def test_the_mask_comes_last(zoo: Zoo) -> None:
    """A processor sees the model's logits; what it makes of them is masked."""
    seen: list[bool] = []

    def looks(tokens: mx.array, logits: mx.array) -> mx.array:
        seen.append(bool(mx.isfinite(logits).all().item()))
        return mx.zeros_like(logits)

    session, grammar = _session(zoo, "greedy", logits_processors=[looks])
    session.prefill(PROMPT)
    session.round(2)
    assert seen
    assert all(seen)
    assert grammar.tokens == _emitted(session)
