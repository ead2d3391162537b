"""Emit-rule and accept-rule: which drafts stand, what is emitted, where it ends."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
import pytest

from mtp_decoder import accepting, generate, rules, session
from mtp_decoder.session import Session
from mtp_decoder.stopping import Stops
from mtp_decoder.text import TextStream
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, pairs, shot

STOP = shot("emit.stop.tokens", "attn", k=3)
BUDGET = shot("emit.budget.tokens", "attn", k=3)
GUESSED = shot("stream.greedy.guessed-drafts", "attn", k=3)
TEXTS = shot("emit.stop.several-texts", "attn", k=4)


def _fault(
    name: str,
    family: Family,
    ids: tuple[str, ...],
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind="T",
        ids=ids,
        invariant="I6",
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
    )


def _no_bonus(patch: pytest.MonkeyPatch) -> None:
    """A round in which everything was accepted hands out its drafts alone."""
    round_ = Session.round

    def faulty(self: Any, num_draft_tokens: int = 0, **named: Any) -> Any:
        done = round_(self, num_draft_tokens, **named)
        if done.accepted == len(done.drafts) > 1:
            return replace(done, tokens=done.tokens[:-1])
        return done

    patch.setattr(Session, "round", faulty)


def _trusts_drafted_stop(patch: pytest.MonkeyPatch) -> None:
    """A stop among the drafts ends decoding before the target has judged it."""
    edit(
        patch,
        generate.emit,
        (
            "outcome = session.round(k, drafts=drafts, more=more)",
            "outcome = session.round(k, drafts=drafts, more=more)\n"
            "            if any((draft,) in ends_at._stops for draft in outcome.drafts):\n"
            "                done = max_tokens - len(outcome.tokens)",
        ),
    )


def _only_the_last_token(patch: pytest.MonkeyPatch) -> None:
    """Of a block only the last token is held to the stops."""
    edit(patch, Stops.until, ("if self._ends(", "if count == new and self._ends("))


def _block_charged_first(patch: pytest.MonkeyPatch) -> None:
    """A whole block is deducted from the budget, whatever of it is emitted."""
    edit(
        patch,
        generate.emit,
        ("done += count\n", "done += num_draft_tokens + 1\n"),
        ("if ends or done == max_tokens:", "if ends or 0 <= max_tokens <= done + 1:"),
    )


def _budget_after_the_first_round(patch: pytest.MonkeyPatch) -> None:
    """The token of the prefill counts for nothing."""
    edit(patch, generate.emit, ("    done = 0\n", "    done = -1\n"))


def _budget_at_the_end_of_a_block(patch: pytest.MonkeyPatch) -> None:
    """The budget neither shortens a block nor what is emitted of it."""
    edit(
        patch,
        generate.emit,
        ("new if max_tokens < 0 else min(new, max_tokens - done)", "new"),
        ("num_draft_tokens if max_tokens < 0 else max_tokens - done - 1", "num_draft_tokens"),
        ("if ends or done == max_tokens:", "if ends or 0 <= max_tokens <= done:"),
    )


def _other_acceptance(
    patch: pytest.MonkeyPatch, change: Callable[[list[int], list[list[int]], Any], Any]
) -> None:
    """Change what is accepted.

    Args:
        patch: undoes it.
        change: from (drafts, the first and the last index of each row's maximum, what was
            accepted) to what is accepted instead.
    """
    accept = session.accept

    def faulty(drafts: Any, logits: mx.array, *rest: Any) -> Any:
        outcome = accept(drafts, logits, *rest)
        tokens = list(getattr(drafts, "tokens", drafts))
        last = logits.shape[-1] - 1 - logits[:, ::-1].argmax(-1)
        rows = cast("list[list[int]]", [logits.argmax(-1).tolist(), last.tolist()])
        return change(tokens, rows, outcome) if tokens else outcome

    patch.setattr(session, "accept", faulty)


def _standing(drafts: list[int], sampled: list[int], outcome: Any) -> Any:
    """The acceptance by equality with other samples, one a draft."""
    kept = 0
    while kept < len(drafts) and sampled[kept] == drafts[kept]:
        kept += 1
    rows = outcome.logprobs[:1]
    return replace(
        outcome,
        accepted=kept,
        tokens=(*drafts[:kept], sampled[min(kept, len(sampled) - 1)]),
        logprobs=mx.repeat(rows, kept + 1, axis=0),
    )


def _row_behind(patch: pytest.MonkeyPatch) -> None:
    """After a reject the correction comes from the row that has seen the rejected draft."""

    def change(drafts: list[int], rows: list[list[int]], outcome: Any) -> Any:
        behind = rows[0][min(outcome.accepted + 1, len(drafts))]
        return replace(outcome, tokens=(*outcome.tokens[:-1], behind))

    _other_acceptance(patch, change)


def _next_row(patch: pytest.MonkeyPatch) -> None:
    """A draft is held to the sample of the row behind its own."""
    _other_acceptance(patch, lambda drafts, rows, made: _standing(drafts, rows[0][1:], made))


def _one_draft_short(patch: pytest.MonkeyPatch) -> None:
    """The last draft of a block is never accepted."""

    def change(drafts: list[int], rows: list[list[int]], outcome: Any) -> Any:
        del rows
        kept = min(outcome.accepted, len(drafts) - 1) + 1
        return replace(
            outcome,
            accepted=kept - 1,
            tokens=outcome.tokens[:kept],
            logprobs=outcome.logprobs[:kept],
        )

    _other_acceptance(patch, change)


def _last_of_equals(patch: pytest.MonkeyPatch) -> None:
    """Among equal maxima verify takes the last one where there are drafts."""
    _other_acceptance(patch, lambda drafts, rows, made: _standing(drafts, rows[1], made))


def _drafts_the_last_of_equals(patch: pytest.MonkeyPatch) -> None:
    """Among equal maxima drafting takes the last one."""
    edit(
        patch,
        rules.Greedy.draft,
        (
            "logits.argmax(-1, keepdims=True)",
            "logits.shape[-1] - 1 - logits[:, ::-1].argmax(-1, keepdims=True)",
        ),
    )


def _first_listed_begins(patch: pytest.MonkeyPatch) -> None:
    """Of two stop strings that one token completes, the first in the list says where text ends."""
    edit(patch, TextStream.add, ("min(found)", "found[0]"))


def _waits_for_the_first_listed(patch: pytest.MonkeyPatch) -> None:
    """Of several stop strings only the first in the list is looked for."""
    edit(patch, TextStream.add, ("for stop in self._stops if", "for stop in self._stops[:1] if"))


def _longest_goes_first(patch: pytest.MonkeyPatch) -> None:
    """A stop string that a longer one may still contain waits for the longer one."""
    edit(
        patch,
        TextStream.add,
        (
            "self.stopped = bool(found)",
            "open_ = [s for s in self._stops if any(s[:n] in text[-n:] and any(o in s[:n] for o in "
            "self._stops if o != s) for n in range(2, len(s)))]\n"
            "    found = [] if open_ else found\n"
            "    self.stopped = bool(found)",
        ),
    )


def _reaches_one_back(patch: pytest.MonkeyPatch) -> None:
    """Of the block before, a stop sequence can have one token at most."""
    reach: Any = vars(Stops)["reach"].fget
    patch.setattr(Stops, "reach", property(lambda stops: min(1, reach(stops))))


def _logprobs_of_the_last_rows(patch: pytest.MonkeyPatch) -> None:
    """Log-probabilities of a block are those of its last rows, whatever was rejected."""
    edit(
        patch,
        accepting.accept,
        ("told.logprobs[len(tokens) - 1]", "told.logprobs[-1][-len(tokens) :]"),
    )


FAULTS = (
    _fault("no-bonus-after-full-accept", Family.EMIT_RULE, ("T1",), _no_bonus, GUESSED, BUDGET),
    _fault(
        "drafted-stop-is-trusted",
        Family.EMIT_RULE,
        ("T2",),
        _trusts_drafted_stop,
        shot("emit.stop.wrong-draft", "attn", k=1),
        shot("emit.stop.wrong-draft", "gdn", k=3),
    ),
    _fault("stop-seen-at-the-end", Family.EMIT_RULE, ("T3",), _only_the_last_token, STOP),
    _fault("whole-block-is-charged", Family.EMIT_RULE, ("T5",), _block_charged_first, BUDGET),
    _fault(
        "a-token-over-the-budget", Family.EMIT_RULE, ("T7",), _budget_after_the_first_round, BUDGET
    ),
    _fault(
        "budget-at-the-end-of-a-block",
        Family.EMIT_RULE,
        ("T5",),
        _budget_at_the_end_of_a_block,
        BUDGET,
    ),
    _fault(
        "correction-of-the-row-behind",
        Family.ACCEPT_RULE,
        ("T10",),
        _row_behind,
        shot("rewind.logits.one-round", "attn", k=2, accepted=1),
        GUESSED,
    ),
    _fault("draft-held-to-the-next-row", Family.ACCEPT_RULE, (), _next_row, pairs("attn"), GUESSED),
    _fault("last-draft-never-stands", Family.ACCEPT_RULE, (), _one_draft_short, pairs("attn")),
    _fault(
        "last-of-equal-maxima",
        Family.ACCEPT_RULE,
        ("T13",),
        _last_of_equals,
        shot("stream.ties.lowest-index", "attn-ties", k=2),
    ),
    _fault(
        "last-of-equal-drafts",
        Family.ACCEPT_RULE,
        ("T13",),
        _drafts_the_last_of_equals,
        shot("stream.ties.own-drafts", "attn-ties", k=2),
    ),
    _fault("text-ends-by-the-list", Family.EMIT_RULE, (), _first_listed_begins, TEXTS),
    _fault("one-stop-string-is-enough", Family.CAP, (), _waits_for_the_first_listed, TEXTS),
    _fault("longest-stop-string-first", Family.EMIT_RULE, (), _longest_goes_first, TEXTS),
    _fault(
        "stops-reach-one-token-back",
        Family.CAP,
        (),
        _reaches_one_back,
        shot("emit.stop.sequences", "window", k=3, extra=(("stop", 3),)),
    ),
    _fault(
        "logprobs-of-the-last-rows",
        Family.EMIT_RULE,
        ("T8",),
        _logprobs_of_the_last_rows,
        shot("emit.logprobs.as-without-drafts", "window", k=3),
    ),
)
