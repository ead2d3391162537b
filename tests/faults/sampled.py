"""Accept-rule, above temperature 0, and what follows the committed tokens."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
import pytest

from mtp_decoder import accepting, randomness, rejecting, rules, sampling, session
from mtp_decoder.processing import Processing, _Follower
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot

HOT = (("acceptance", "rejection"), ("gaps", "2"))
OWN = shot("sample.law.own-drafts", "gdn-agree", k=1, extra=HOT)
GIVEN = shot("sample.law.given-drafts", "gdn-agree", k=2, extra=HOT)
SEEDED = shot("sample.stream.guessed-drafts", "window", k=4)
LIKELIEST = shot("sample.stream.likeliest-drafts", "window", k=1)
EARLY = shot("sample.seed.early-or-late", "gdn", k=0)
PENALTY = shot("sample.processor.penalty", "window", k=4)
MASK = shot("sample.mask.guessed-drafts", "window", k=4)
STEERED = shot("sample.stream.steered", "attn", k=4)
GOES_ON = shot("sample.stream.goes-on", "window", k=2)


def _by_equality(patch: pytest.MonkeyPatch) -> None:
    """A draft stands if it equals a sample of its own; else another is drawn from p."""
    edit(
        patch,
        rejecting.judge,
        (
            "if not accepting(i) * proposal < chance:",
            "if draw(p[i], accepting(i)).item() != drafts[i] and proposal >= chance * 0:",
        ),
        ("residual(p[i], q[i])", "p[i]"),
    )


def _ratio_without_q(patch: pytest.MonkeyPatch) -> None:
    """A draft stands with probability p, whatever it was drawn by."""
    edit(patch, rejecting.judge, ("accepting(i) * proposal < chance", "accepting(i) < chance"))


def _drafts_greedily(patch: pytest.MonkeyPatch) -> None:
    """Drafts are the likeliest tokens and are judged as if drawn from their law."""
    edit(
        patch,
        rules.Rejecting.draft,
        ("draw(law, u)[:, None]", "(law.argmax(-1) if u < 2 else None)[:, None]"),
    )


def _temperature_of_one(rule: type, patch: pytest.MonkeyPatch) -> None:
    """Verify samples at temperature 1, whatever was asked for."""
    if rule is rules.Rejecting:
        edit(patch, rules.Rejecting.judge, ("self._sampling.probabilities(logits)", _SOFTMAX))
    else:
        edit(patch, rules.Matching._pick, ("self._sampling.shape(logits)", "normalise(logits)"))


_SOFTMAX = "mx.softmax(logits.astype(mx.float32), axis=-1)"


def _never_greedy(patch: pytest.MonkeyPatch) -> None:
    """Only the absence of every setting counts as greedy: a seed is enough to sample."""
    edit(
        patch,
        rules.make_rule,
        (
            "if not sampling.temp:",
            "if not sampling.temp and sampling.seed:\n"
            "        return Matching(Sampling(1.0, seed=sampling.seed))\n"
            "    if not sampling.temp:",
        ),
    )


def _one_stream(patch: pytest.MonkeyPatch) -> None:
    """All requests draw from one generator, which every number advances."""
    patch.setattr(rules, "gumbel", lambda seed, position, size: mx.random.gumbel((size,)))


def _first_token_apart(patch: pytest.MonkeyPatch) -> None:
    """The first token of a request is drawn from a generator of its own."""
    edit(
        patch,
        Session._run_prompt,
        ("none = Drafts((), self._length)", "none = Drafts((), self._length + 2**20)"),
    )


def _numbers_by_round(patch: pytest.MonkeyPatch) -> None:
    """Noise is keyed by the row of the block and not by its place in the sequence."""
    edit(
        patch,
        rules.Matching._pick,
        ("gumbel(seed, position + i, size)", "gumbel(seed, position, size)"),
    )


def _first_row_alone(patch: pytest.MonkeyPatch) -> None:
    """Processors act on the first row of a block and on no other."""
    edit(
        patch,
        accepting._accept_row_by_row,
        (
            "row = processing.row([*history, *tokens], logits[i : i + 1])",
            "row = logits[i : i + 1] if i else processing.row(list(history), logits[:1])",
        ),
    )


def _stale_history(patch: pytest.MonkeyPatch) -> None:
    """While drafts are judged, processors do not see the newest token."""
    edit(
        patch,
        accepting._accept_row_by_row,
        ("[*history, *tokens]", "[*history, *tokens[:-1]]"),
    )


def _mask_of_the_first_row(patch: pytest.MonkeyPatch) -> None:
    """The mask acts once a round; behind its first row any token may come."""
    masked = Processing._masked

    def faulty(what: Any, logits: mx.array) -> mx.array:
        del what
        return logits

    row = accepting._accept_row_by_row

    def judging(drafts: Any, logits: Any, history: Any, rule: Any, processing: Any) -> Any:
        calls: list[int] = []

        def once(what: Any, row: mx.array) -> mx.array:
            calls.append(1)
            return masked(what, row) if len(calls) == 1 else faulty(what, row)

        patch.setattr(Processing, "_masked", staticmethod(once))
        return row(drafts, logits, history, rule, processing)

    patch.setattr(accepting, "_accept_row_by_row", judging)


def _matcher_stays_ahead(patch: pytest.MonkeyPatch) -> None:
    """A matcher that is to go back by more than one token goes back by one."""
    edit(
        patch,
        _Follower.move_to,
        ("self.what.rewind(len(self._told) - common)", "self.what.rewind(1)"),
    )


def _matcher_never_goes_back(patch: pytest.MonkeyPatch) -> None:
    """A matcher is never told that tokens were not emitted after all."""
    edit(patch, _Follower.move_to, ("self.what.rewind(len(self._told) - common)", "pass"))


def _fork_shares_its_matcher(patch: pytest.MonkeyPatch) -> None:
    """A fork tells the very matcher of the session it came from."""
    edit(patch, _Follower.fork, ("self.what.fork()", "self.what"))


def _last_of_equals(patch: pytest.MonkeyPatch) -> None:
    """Of equal probabilities at a cut the highest ids stay."""
    edit(
        patch,
        sampling.keep_largest,
        (
            "mx.cumsum(tied.astype(mx.int32), axis=-1)",
            "mx.cumsum(tied.astype(mx.int32), axis=-1, reverse=True)",
        ),
    )


def _law_of_the_row_before(patch: pytest.MonkeyPatch) -> None:
    """After a reject, what p has more than q is taken of the first draft's q."""
    edit(patch, rejecting.judge, ("residual(p[i], q[i])", "residual(p[i], q[0])"))


def _likeliest_draft_stands(patch: pytest.MonkeyPatch) -> None:
    """A draft that is the likeliest token stands, whatever is sampled there."""
    patch.setattr(session, "verdict", lambda *_: None)  # what is told has seen no draft
    edit(
        patch,
        rules.Matching.judge,
        (
            "return while_equal(self._pick(logits, position), drafts)",
            "picked, best = self._pick(logits, position).tolist(), logits.argmax(-1).tolist()\n"
            "    right = [d if d == b else p for p, b, d in zip(picked, best, drafts)]\n"
            "    return while_equal(mx.array([*right, *picked[len(right) :]]), drafts)",
        ),
    )


def _seed_ignored(patch: pytest.MonkeyPatch) -> None:
    """Random numbers hang on the position alone."""
    edit(patch, randomness._bits, ('pack("<QQQ", seed,', 'pack("<QQQ", 0,'))


def _masked_after_sampling(patch: pytest.MonkeyPatch) -> None:
    """Behind the first row a token is sampled from the unmasked law, then pushed into the mask."""
    row, judge = Processing.row, rules.Matching.judge
    held: list[mx.array] = []

    def unmasked(self: Any, history: Any, logits: mx.array) -> mx.array:
        masked = row(self, history, logits)
        if self._mask is None or self._row == 0:
            held[:] = []
            return masked
        held[:] = [masked]
        return logits

    def judging(self: Any, drafts: Any, logits: mx.array, position: int, laws: Any) -> list[int]:
        tokens = judge(self, (), logits, position, laws)
        if held and held[0][0, tokens[0]].item() == -mx.inf:
            tokens = cast("list[int]", held[0].argmax(-1).tolist())
        held[:] = []
        return tokens

    edit(
        patch,
        accepting._accept_row_by_row,
        (
            "row = processing.row(",
            "processing._row = i if type(rule).__name__ == 'Matching' else 0\n"
            "        row = processing.row(",
        ),
    )
    patch.setattr(Processing, "row", unmasked)
    patch.setattr(rules.Matching, "judge", judging)


def _penalty_sees_rejected_drafts(patch: pytest.MonkeyPatch) -> None:
    """Above temperature 0 the penalty's history has the round's drafts in it, whatever stands."""
    edit(
        patch,
        accepting._accept_row_by_row,
        (
            "rows: list[mx.array] = []",
            "rows: list[mx.array] = []\n"
            "    processing._offered = drafts.tokens if not hasattr(rule, '_sampler') and "
            "type(rule).__name__ != 'Greedy' else ()",
        ),
    )
    edit(
        patch,
        Processing.row,
        ("mx.array(list(history))", "mx.array([*history, *getattr(self, '_offered', ())])"),
    )


def _cut_of_the_first_row(patch: pytest.MonkeyPatch) -> None:
    """A cut leaves as many tokens in every row of a block as in its first."""
    edit(
        patch,
        sampling.Sampling.shape,
        ("self._count(logprobs, below)", "self._count(logprobs, below)[:1]"),
    )


def _mask_goes_on_over_the_turn(patch: pytest.MonkeyPatch) -> None:
    """A next turn leaves the mask where the last one ended."""
    edit(
        patch,
        Session._run_prompt,
        (
            "self._processing.begin(len(history))",
            "self._processing.prompt_length or self._processing.begin(len(history))",
        ),
    )


def _mask_not_saved(patch: pytest.MonkeyPatch) -> None:
    """After a restore the mask begins anew."""
    edit(
        patch,
        Session._take_over,
        (
            'self._processing.begin(settings["prompt_length"])',
            "self._processing.begin(len(self.history))",
        ),
    )


def _places_counted_anew(patch: pytest.MonkeyPatch) -> None:
    """The first token of a next turn is drawn with the numbers of a place in the turn alone."""
    edit(
        patch,
        Session._run_prompt,
        ("none = Drafts((), self._length)", "none = Drafts((), len(tokens))"),
    )


def _cancelled_place(patch: pytest.MonkeyPatch) -> None:
    """A round that is given up leaves the place in the sequence where its pass ended."""
    edit(patch, Session.cancel, ("self._length = opened.length", "assert self._length"))


def _penalty_sees_the_turn_alone(patch: pytest.MonkeyPatch) -> None:
    """For the first token of a next turn the penalty sees that turn, and nothing before."""
    edit(
        patch,
        Session._run_prompt,
        (
            "accept(none, logits, history, self._rule, self._processing)",
            "accept(none, logits, tokens, self._rule, self._processing)",
        ),
    )


# Two more were tried and are none: leaving out that followers are settled after a round, or after a
# cancel. `Processing.row` settles them before it looks at any of them, so no token can differ; that
# a user's own matcher is where the tokens are is held by tests/decoder/test_following_states.py.


def _fault(
    name: str,
    ids: tuple[str, ...],
    invariant: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
    family: Family = Family.ACCEPT_RULE,
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind="S",
        ids=ids,
        invariant=invariant,
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
    )


FAULTS = (
    _fault("accepts-by-equality", ("S1",), "I11", _by_equality, GIVEN),
    _fault("ratio-without-q", ("S1",), "I11", _ratio_without_q, OWN),
    _fault("greedy-drafts-judged-as-drawn", ("S2",), "I11", _drafts_greedily, OWN),
    _fault(
        "rejection-at-temperature-1",
        ("S3",),
        "I11",
        lambda patch: _temperature_of_one(rules.Rejecting, patch),
        GIVEN,
    ),
    _fault(
        "matching-at-temperature-1",
        ("S3",),
        "I11",
        lambda patch: _temperature_of_one(rules.Matching, patch),
        shot(
            "sample.law.given-drafts",
            "gdn-agree",
            k=2,
            extra=(("acceptance", "match"), ("gaps", "0.5")),
        ),
    ),
    _fault("a-seed-is-enough-to-sample", ("S4",), "I6", _never_greedy, EARLY),
    _fault("one-generator-for-all", ("S6",), "I10", _one_stream, EARLY, SEEDED),
    _fault(
        "first-token-of-another-generator",
        ("S7",),
        "I10",
        _first_token_apart,
        shot("sample.seed.any-path", "attn", k=0),
        family=Family.PATH_GAP,
    ),
    _fault("noise-by-round", ("S6",), "I10", _numbers_by_round, SEEDED, family=Family.SLOT_ORIGIN),
    _fault(
        "processors-on-the-first-row",
        ("S8",),
        "I10",
        _first_row_alone,
        PENALTY,
        family=Family.PATH_GAP,
    ),
    _fault(
        "processors-see-a-stale-history",
        ("S10",),
        "I10",
        _stale_history,
        PENALTY,
        family=Family.LATCH,
    ),
    _fault(
        "mask-on-the-first-row",
        ("S13",),
        "I10",
        _mask_of_the_first_row,
        MASK,
        family=Family.PATH_GAP,
    ),
    _fault(
        "matcher-goes-back-by-one",
        ("S11",),
        "I10",
        _matcher_stays_ahead,
        shot("sample.mask.after-a-stop", "gdn", k=4),
        family=Family.CAP,
    ),
    _fault(
        "matcher-never-goes-back",
        ("S11",),
        "I10",
        _matcher_never_goes_back,
        shot("sample.mask.after-a-stop", "gdn", k=4),
        family=Family.SKIP_RESTORE,
    ),
    _fault(
        "fork-shares-its-matcher",
        ("S11",),
        "I10",
        _fork_shares_its_matcher,
        shot("sample.mask.fork", "gdn", k=2),
        family=Family.ALIAS,
    ),
    _fault(
        "last-of-equals-at-a-cut",
        (),
        "I6",
        _last_of_equals,
        shot("sample.cuts.lowest-of-equals", "attn-ties", k=2, prompt=6, extra=(("cut", "top-k"),)),
    ),
    _fault("law-of-the-row-before", ("S1",), "I11", _law_of_the_row_before, GIVEN),
    _fault("likeliest-draft-stands", ("S1",), "I10", _likeliest_draft_stands, LIKELIEST),
    _fault("seed-ignored", ("S6",), "I10", _seed_ignored, EARLY),
    _fault(
        "masked-after-sampling",
        ("S13",),
        "I10",
        _masked_after_sampling,
        STEERED,
        family=Family.PATH_GAP,
    ),
    _fault(
        "sampling-penalty-sees-rejected-drafts",
        ("S10",),
        "I10",
        _penalty_sees_rejected_drafts,
        STEERED,
        family=Family.LATCH,
    ),
    _fault(
        "cut-of-the-first-row",
        (),
        "I11",
        _cut_of_the_first_row,
        SEEDED,
        family=Family.CAP,
    ),
    _fault(
        "mask-goes-on-over-the-turn",
        (),
        "I10",
        _mask_goes_on_over_the_turn,
        GOES_ON,
        family=Family.LATCH,
    ),
    _fault(
        "mask-is-not-saved",
        (),
        "I10",
        _mask_not_saved,
        GOES_ON,
        family=Family.PATH_GAP,
    ),
    _fault(
        "places-counted-by-turn",
        ("S7",),
        "I10",
        _places_counted_anew,
        GOES_ON,
        family=Family.PATH_GAP,
    ),
    _fault(
        "cancelled-round-moves-the-place",
        (),
        "I10",
        _cancelled_place,
        GOES_ON,
        family=Family.SKIP_RESTORE,
    ),
    _fault(
        "penalty-sees-the-turn-alone",
        ("S10",),
        "I10",
        _penalty_sees_the_turn_alone,
        GOES_ON,
        family=Family.PATH_GAP,
    ),
)
