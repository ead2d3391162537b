"""The state and stream claims to the bit, round by round.

*state*: two sessions are given the same accepted drafts and other rejected ones; after the
rewind every array of every cache, the head's too, has the same bits. Holds in either mode.

*stream*: in row-exact mode a session with drafts stays beside one without. Tokens, the logits
of every row that stands, and after every round every array of every cache have the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from mtp_conformance.exactness import compare_states
from mtp_decoder.session import Session
from tests.gpu.models import Subject
from tests.gpu.rows import Row

PROMPT = 33
_WRONG = (1, 2)


def prompt(vocabulary: int, length: int = PROMPT) -> list[int]:
    """A fixed text of token ids."""
    return [(7919 * i + 104729) % min(vocabulary, 251) for i in range(1, length + 1)]


def session(pair: Any, **settings: Any) -> Session:
    """A session after the prompt, whose head rows are made from the verified hidden."""
    target, head = pair
    made = Session(target, head, head_rows="target", **settings)
    made.prefill(prompt(target.vocab_size))
    return made


_LAST: list[Session] = []
"""The K=0 session of the model in hand, which goes on as far as it is asked."""


def plain(pair: Any, tokens: int) -> list[int]:
    """The tokens of K=0: the first from the prefill, `tokens` more."""
    if not _LAST or vars(_LAST[0])["_target"] is not pair[0]:
        _LAST[:] = [session(pair)]
    while len(_LAST[0].history) <= PROMPT + tokens:
        _LAST[0].round(drafts=())
    return _LAST[0].history[PROMPT : PROMPT + tokens + 1]


def accepts(k: int) -> Iterator[int]:
    """How many drafts are to stand, round by round: every count comes, in changing order."""
    step = next(step for step in range(k // 2 + 1, k + 2) if math.gcd(step, k + 1) == 1)
    for number in itertools.count():
        yield (number * step + number // (k + 1)) % (k + 1)


def drafts_for(
    stream: list[int], emitted: int, k: int, accepted: int, wrong: int, vocabulary: int
) -> list[int]:
    """K drafts of which `accepted` are the stream's; the next one is not."""
    right = stream[emitted : emitted + k]
    drafts = right[:accepted]
    while len(drafts) < k:
        at = emitted + len(drafts)
        meant = stream[at] if at < len(stream) else 0
        drafts.append((meant + wrong) % vocabulary)
    return drafts


def state_claim(subject: Subject, pair: Any, k: int, tokens: int, **settings: Any) -> Row:
    """State after rewinds against that of other rejected drafts; a row with what was compared."""
    stream = plain(pair, tokens + k + 2)
    vocabulary = pair[0].vocab_size
    both = [session(pair, **settings) for _ in _WRONG]
    compared, rejected, differing, plan = 0, 0, "", accepts(k)
    while len(both[0].history) - PROMPT < tokens and not differing:
        emitted, accepted = len(both[0].history) - PROMPT, next(plan)
        rounds = [
            one.round(drafts=drafts_for(stream, emitted, k, accepted, wrong, vocabulary))
            for one, wrong in zip(both, _WRONG, strict=True)
        ]
        if rounds[0].tokens != rounds[1].tokens:
            differing = f"tokens {rounds[0].tokens} and {rounds[1].tokens}"
            break
        # The fast mode may emit another token than K=0; what follows is compared all the same.
        stream[emitted : emitted + len(rounds[0].tokens)] = rounds[0].tokens
        found = compare_states(both[0].state(), both[1].state())
        compared += found.elements
        rejected += k - rounds[0].accepted
        differing = ", ".join(found.differing[:3])
    return {
        **_of(subject, k, settings),
        "part": "state",
        "tokens": len(both[0].history) - PROMPT,
        "rejected": rejected,
        "compared": compared,
        "differing": differing,
        "ok": not differing and compared > 0 and rejected > 0,
    }


def stream_claim(subject: Subject, pair: Any, k: int, tokens: int, **settings: Any) -> Row:
    """A session with drafts beside one without, in row-exact mode; a row with what was compared."""
    stream = plain(pair, tokens + k + 2)
    vocabulary = pair[0].vocab_size
    steps, drafted = session(pair), session(pair, row_exact=True, **settings)
    compared, rejected, accepted_all, differing, plan = 0, 0, 0, "", accepts(k)
    while len(drafted.history) - PROMPT < tokens and not differing:
        emitted, accepted = len(drafted.history) - PROMPT, next(plan)
        round_ = drafted.round(drafts=drafts_for(stream, emitted, k, accepted, 1, vocabulary))
        ones = [steps.round(drafts=()) for _ in round_.tokens]
        if round_.tokens != tuple(token for one in ones for token in one.tokens):
            differing = f"tokens after {emitted}"
            break
        rows = mx.concatenate([one.logits for one in ones])
        logits = compare_states({"logits": round_.logits[: len(ones)]}, {"logits": rows})
        state = compare_states(drafted.state(), steps.state())
        compared += logits.elements + state.elements
        rejected += k - round_.accepted
        accepted_all += round_.accepted
        differing = ", ".join((*logits.differing, *state.differing)[:3])
    return {
        **_of(subject, k, {"row_exact": True, **settings}),
        "part": "stream",
        "tokens": len(drafted.history) - PROMPT,
        "accepted": accepted_all,
        "rejected": rejected,
        "compared": compared,
        "differing": differing,
        "ok": not differing and compared > 0 and rejected > 0,
    }


def _of(subject: Subject, k: int, settings: dict[str, Any]) -> Row:
    return {
        "model": subject.name,
        "dtype": subject.dtype,
        "bits": subject.quantised,
        "k": k,
        "row_exact": bool(settings.get("row_exact")),
        "strategy": str(settings.get("rewind", "tape")),
    }
