"""Sessions over a runtime's own generator: rounds, guesses, ends."""

from collections.abc import Iterator, Sequence

import pytest

from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    over_after_failure,
)

RIGHT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def _late(
    prompt: Sequence[int], k: int, limit: int, injection: Injection, ends: Ends
) -> Iterator[Emitted]:
    """A runtime that is always right; its own drafts repeat the last token.

    It looks at its budget between rounds, and at no end.
    """
    yield RIGHT[0], False
    at = 1
    while at < min(limit, len(RIGHT)):
        drafts = (injection.block(at, k) or [RIGHT[at - 1]] * k) if k else []
        injection.note(len(drafts))
        for draft in drafts:
            if draft != RIGHT[at]:
                break
            yield RIGHT[at], True
            at += 1
        yield RIGHT[at], False
        at += 1


def _generator(
    prompt: Sequence[int], k: int, limit: int, injection: Injection, ends: Ends
) -> Iterator[Emitted]:
    """That, ending where it should."""
    emitted: list[int] = []
    stops = [*ends.stop_sequences, *((token,) for token in ends.eos_token_ids)]
    for token, stands in _late(prompt, k, limit, injection, ends):
        emitted.append(token)
        yield token, stands
        if len(emitted) == limit or any(tuple(emitted[-len(s) :]) == s for s in stops):
            return


def test_rounds_are_what_one_block_emits() -> None:
    """Right drafts stand up to the first wrong one; the rounds go on where the last one ended."""
    session = GeneratorSession(_generator)
    assert session.prefill([1, 2]).tokens == (5,)
    assert (session.round([6, 7, 0]).accepted, session.round([9, 0, 0]).tokens) == (2, (9, 10))
    assert session.round([11, 12, 13]).tokens == (11, 12, 13, 14)


def test_k_may_not_change() -> None:
    """The generator keeps its K, so another number of drafts is unsupported, not wrong."""
    session = GeneratorSession(_generator)
    session.prefill([1])
    session.round([6])
    with pytest.raises(ValueError, match=r"^unsupported: .* keeps the K it started with"):
        session.round([])


def test_guess_is_drafted_by_index() -> None:
    """guess[i] is the draft of the i-th emitted token; its counts are the drafter's."""
    session = GeneratorSession(_generator)
    made = session.generate([1], num_draft_tokens=3, max_tokens=8, guess=RIGHT)
    assert (made.tokens, made.drafted, made.accepted) == (tuple(RIGHT[:8]), 6, 6)
    wrong = session.generate([1], num_draft_tokens=2, max_tokens=5, guess=[0] * 9)
    assert (wrong.tokens, wrong.drafted, wrong.accepted) == (tuple(RIGHT[:5]), 8, 0)


def test_own_drafts_without_a_guess() -> None:
    """Nothing is injected: the runtime's own drafts are counted."""
    made = GeneratorSession(_generator).generate([1], num_draft_tokens=2, max_tokens=4)
    assert (made.drafted, made.accepted) == (6, 0)


@pytest.mark.parametrize("stop", [{"eos_token_ids": [8]}, {"stop_sequences": [[7, 8]]}])
def test_stops_end_it(stop: dict[str, list[int]]) -> None:
    """The runtime is told what ends it, and ends wherever that falls in a block."""
    session = GeneratorSession(_generator, takes_eos=True, takes_stops=True)
    made = session.generate([1], num_draft_tokens=4, max_tokens=12, guess=RIGHT, **stop)  # type: ignore[arg-type]
    assert made.tokens == (5, 6, 7, 8)


def test_nothing_is_cut() -> None:
    """What a runtime emits past its budget or its end of text is shown."""
    session = GeneratorSession(_late, takes_eos=True)
    made = session.generate([1], num_draft_tokens=3, max_tokens=3, eos_token_ids=[6], guess=RIGHT)
    assert made.tokens == (5, 6, 7, 8, 9)


def test_endless_is_given_up() -> None:
    """A runtime that does not end is left well past its budget."""

    def endless(*_: object) -> Iterator[Emitted]:
        while True:
            yield 5, False

    made = GeneratorSession(endless).generate([1], num_draft_tokens=1, max_tokens=3)
    assert len(made.tokens) == 3 + 64


@pytest.mark.parametrize(
    ("stop", "what"),
    [({"eos_token_ids": [8]}, "end-of-text ids"), ({"stop_sequences": [[7, 8]]}, "stop sequences")],
)
def test_ends_not_taken_are_refused(stop: dict[str, list[int]], what: str) -> None:
    """The adapter does not stand in for its runtime."""
    session = GeneratorSession(_generator)
    with pytest.raises(ValueError, match=f"^unsupported: its generator takes no {what}"):
        session.generate([1], num_draft_tokens=1, max_tokens=3, **stop)  # type: ignore[arg-type]


def test_deaf_runtime_is_an_error() -> None:
    """A runtime that does not ask for the drafts it was given has verified others."""

    def deaf(
        prompt: Sequence[int], k: int, limit: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        return _generator(prompt, 0, limit, injection, ends)

    session = GeneratorSession(deaf)
    session.prefill([1])
    with pytest.raises(RuntimeError, match="of 2 drafts given the runtime verified 0"):
        session.round([6, 7])


def test_generator_that_ends_is_an_error() -> None:
    """A round that never comes to its end has no outcome."""

    def short(*_: object) -> Iterator[Emitted]:
        yield 5, False

    session = GeneratorSession(short)
    session.prefill([1])
    with pytest.raises(RuntimeError, match="ended within a round"):
        session.round([])


@over_after_failure
class Mortal(GeneratorSession):
    """Shows as its state how its generator was started last."""

    def __init__(self, faulty: str, *, drafting: bool = True) -> None:
        super().__init__(self._tokens)
        self.faulty, self._drafting = faulty, drafting

    def _tokens(
        self, prompt: Sequence[int], k: int, limit: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        if self.faulty and bool(k) == self._drafting:
            raise RuntimeError(self.faulty)
        yield from _generator(prompt, k, limit, injection, ends)

    def state(self) -> int | None:
        """K."""
        return self._k


@pytest.mark.parametrize("call", ["prefill", "round", "generate", "state"])
def test_failure_ends_a_session(call: str) -> None:
    """After a round that raised, whatever it is asked for, it says why there is no more."""
    session = Mortal("out of memory")
    session.prefill([1])
    with pytest.raises(RuntimeError, match=r"^out of memory"):
        session.round([6])
    given: dict[str, tuple[object, ...]] = {"prefill": ([1],), "round": ([6],), "generate": ([1],)}
    with pytest.raises(RuntimeError, match=r"^an error ended this session: out of memory"):
        getattr(session, call)(*given.get(call, ()))


def test_refusal_ends_no_session() -> None:
    """What is unsupported was not begun, so that the session goes on."""
    session = Mortal("unsupported: drafts")
    session.prefill([1])
    with pytest.raises(ValueError, match=r"^unsupported: "):
        session.generate([1], num_draft_tokens=1, max_tokens=2, eos_token_ids=[3])
    assert (session.state(), session.round([]).tokens) == (0, (6,))


def test_prompt_that_failed_ends_no_session() -> None:
    """It can be run again."""
    session = Mortal("out of memory", drafting=False)
    with pytest.raises(RuntimeError, match=r"^out of memory"):
        session.prefill([1])
    session.faulty = ""
    assert session.prefill([1]).tokens == (5,)
