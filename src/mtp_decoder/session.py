"""A decoding session, step by step: prefill, then rounds of draft, verify, accept, rewind.

The target's cache holds every emitted token but the last one, the anchor. A round drafts K
tokens, verifies [anchor, d_1 .. d_K] in one pass, accepts a of them, rewinds to a+1
positions and emits a drafts and one correction or bonus.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, MutableSequence, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.accepting import Acceptance, Drafts, Verdict, accept, verdict
from mtp_decoder.ahead import Ahead
from mtp_decoder.counters import Counters
from mtp_decoder.drafting import Chain, Drafter, HeadRows, Place
from mtp_decoder.errors import (
    CacheMismatchError,
    DecoderError,
    RewindError,
    SessionFileError,
    UnrewindableCacheError,
)
from mtp_decoder.experts import stores_of, through_whole_layers, whole_layers
from mtp_decoder.naming import member_of
from mtp_decoder.processing import LogitsProcessor, Processing, TokenMask
from mtp_decoder.prompt_cache import (
    check_content,
    check_head_content,
    make_prompt_cache,
    split,
)
from mtp_decoder.quantised import KVQuantisation
from mtp_decoder.rewind import Rewind, check_head_rewindable, check_rewindable
from mtp_decoder.row_exact import row_exact as as_row_exact
from mtp_decoder.row_exact import row_exact_head
from mtp_decoder.rules import Sampler, Told, make_rule
from mtp_decoder.sampling import Sampling
from mtp_decoder.saving import SavedSession, fingerprint, read_session, write_session
from mtp_decoder.state import arrays_of, copy_cache, named_state
from mtp_decoder.target import Head, Target
from mtp_decoder.window import Window, forward

MAX_DRAFT_TOKENS = 64
NO_HEAD = "this model has no MTP head: load one, or decode with num_draft_tokens=0"
_OF_A_TARGET = ("vocab_size", "layers", "make_cache", "embed", "logits")
_OF_A_HEAD = ("layers", "make_cache", "__call__")


@dataclass(frozen=True)
class Verification:
    """One verify pass: the drafts [K], the residual [1, K+1, W], the logits [K+1, V].

    `position` is the first draft's in the sequence; `laws` are the probabilities [K, V] the
    drafts were drawn from, None if they were not drawn so; `verdict` is what they will be judged
    by, where logits and position settle it; other logits need another one, or None. `rows` are the
    residual's positions, [1, 1, W] each, where a head waits for one of them.
    """

    drafts: tuple[int, ...]
    hidden: mx.array
    logits: mx.array
    position: int
    laws: mx.array | None = None
    verdict: Verdict | None = None
    rows: tuple[mx.array, ...] = ()


@dataclass(frozen=True)
class Round:
    """One finished round.

    Attributes:
        drafts: the K verified drafts.
        accepted: a, how many stand.
        tokens: the a+1 emitted tokens; the last one is the new anchor.
        logits: [K+1, V] of the verify pass; rows past `accepted` judged rejected drafts.
        logprobs: [a+1, V] of the emitted tokens.
    """

    drafts: tuple[int, ...]
    accepted: int
    tokens: tuple[int, ...]
    logits: mx.array
    logprobs: mx.array


@dataclass
class _OpenRound:
    """What a cancel needs: lengths, the head's place and caches before the round, and the pass.

    The caches are others than the session's where the round quantised some.
    """

    length: int
    tokens: int
    head: Place | None
    drafts: list[int]
    caches: tuple[list[Any], list[Any]]
    laws: mx.array | None = None
    window: Window | None = None
    verified: bool = False


class Session:
    """One sequence being decoded.

    Args:
        target: the model.
        head: its MTP head; without one only rounds without drafts of its own are possible.
        rewind: strategy for state that cannot be cut back.
        head_rows: what the head's rows of accepted drafts are made from.
        sampler: log-probabilities [rows, V] to token ids, in place of `sampling`.
        sampling: temperature, cuts and seed, and when a draft stands; greedy by default.
        logits_processors: as mlx-lm's: (tokens so far, logits [1, V]) to logits.
        token_mask: which tokens may come next, such as a grammar's matcher.
        prompt_cache: from `make_prompt_cache(target, head)`; updated in place.
        prefill_step_size: prompt tokens a prefill pass.
        kv_bits: bits of a quantised key or value: 2, 4 or 8; None keeps them as they are.
        kv_group_size: how many of them share a scale: 32, 64 or 128.
        quantized_kv_start: tokens in the caches from which on they are quantised; see
            `mtp_decoder.quantised`.
        row_exact: compute every row of a verify pass as a one-token step does, so that tokens do
            not depend on K on any backend; see `mtp_decoder.row_exact` for what it costs.

    Raises:
        CacheMismatchError: the prompt cache is another model's.
        UnrewindableCacheError: a layer's cache has no rewind and a head was given.
        DecoderError: `prefill_step_size` is not a positive whole number, target, head or token
            mask is no such thing, there are a sampler and a temperature, or the model's caches
            cannot be quantised so.
    """

    def __init__(  # noqa: PLR0913  (one keyword for each thing a user may choose)
        self,
        target: Target,
        head: Head | None = None,
        *,
        rewind: Rewind | str = Rewind.TAPE,
        head_rows: HeadRows | str = HeadRows.DRAFT,
        sampler: Sampler | None = None,
        sampling: Sampling | None = None,
        logits_processors: Sequence[LogitsProcessor] | None = None,
        token_mask: TokenMask | None = None,
        prompt_cache: Sequence[Any] | None = None,
        prefill_step_size: int = 2048,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 0,
        row_exact: bool = False,
    ) -> None:
        check_model(target, head)
        step_size = whole_number(prefill_step_size, "prefill_step_size")
        if step_size < 1:
            raise DecoderError(f"prefill_step_size must be at least 1, not {step_size}")
        self._rewind = member_of(Rewind, rewind, "rewind")
        self._head_rows = member_of(HeadRows, head_rows, "head_rows")
        self._target = target
        self._head = head
        self._verifier = as_row_exact(target) if row_exact else target
        self._settler = row_exact_head(head) if row_exact and head is not None else head
        self._sampler = sampler
        self._rule = make_rule(sampling or Sampling(), sampler)
        self._processing = Processing(logits_processors or (), token_mask)
        self._step_size = step_size
        self._quantisation = None
        if kv_bits is not None:
            self._quantisation = KVQuantisation(kv_bits, kv_group_size, quantized_kv_start)
            self._quantisation.check(target, head)
        cache = make_prompt_cache(target, head) if prompt_cache is None else prompt_cache
        self._given = cache
        self._caches, self._head_caches, self._frontier = self._split(cache)
        self._unrewindable = _why_unrewindable(target, self._caches)
        if head is not None:
            self.require_rewindable()
            check_head_rewindable(head.layers, self._head_caches)
        self._length = check_content(self._caches, target)
        if head is not None:
            check_head_content(self._head_caches, target, head)
        self._drafter = self._make_drafter()
        # Whether layers compute while they run, for experts on disk; else they only build a graph.
        self._reads = bool(stores_of([*target.layers, *(() if head is None else head.layers)]))
        self._broken = self._fingerprint = ""
        self._open: _OpenRound | None = None
        self._window: Window | None = None
        self._verified: Verification | None = None
        self._settled: Acceptance | None = None
        self._ahead = Ahead(target, self._caches)
        # Tokens in the caches less those of the history, while a step is under way.
        self._unsaid = 0
        self.history: list[int] = []
        self.counters = Counters()

    def _split(self, cache: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        return split(cache, self._target, self._head, self._quantisation)

    def _make_drafter(self) -> Drafter | None:
        if self._head is None or self._frontier is None:
            return None
        drafter = Drafter(self._head, self._head_caches, self._head_rows, self._settler)
        drafter.hidden = self._frontier[0]
        if drafter.length != max(self._length - 1, 0) or (self._length and drafter.hidden is None):
            raise CacheMismatchError(
                f"the head's cache holds {drafter.length} pairs for {self._length} target "
                "tokens; it was not filled by this decoder with this head"
            )
        return drafter

    def require_rewindable(self) -> None:
        """Refuse a target whose caches cannot all be rewound.

        Raises:
            UnrewindableCacheError: names the first such layer and its cache's class.
        """
        if self._unrewindable is not None:
            raise self._unrewindable

    @property
    def target_length(self) -> int:
        """Tokens in the target's caches."""
        return self._length

    @property
    def anchor(self) -> int:
        """The last emitted token, not yet in the caches.

        Raises:
            DecoderError: nothing was prefilled yet.
        """
        if not self.history:
            raise DecoderError("nothing was decoded yet: call prefill first")
        return self.history[-1]

    def prefill(self, prompt: Sequence[int]) -> Round:
        """Run the prompt through target and head and emit the first token.

        Every pair of the prompt enters the head's cache. The last token runs alone, as in
        mlx-lm, so that its logits are a one-token step's.

        Args:
            prompt: token ids, at least one, each in the vocabulary. After a used prompt
                cache they go on from its frontier.

        Raises:
            DecoderError: the prompt is empty, holds a token outside the vocabulary, or a
                prompt was prefilled before.
        """
        tokens = self.check_prompt(prompt)
        return self._run_prompt(tokens, tokens)

    def extend(self, tokens: Sequence[int]) -> Round:
        """Run more prompt tokens, such as the next turn, and emit the token after them.

        The anchor, which no cache holds yet, goes first. What follows is what a prefill of
        everything so far would give; only the head's rows of accepted drafts stay as they are.
        If any part of it fails, caches and history are put back to before the call.

        Args:
            tokens: token ids, at least one, each in the vocabulary.

        Raises:
            DecoderError: no token or one outside the vocabulary, nothing was prefilled yet, or
                a round is open.
        """
        anchor = self.anchor
        self._require_closed()
        new = self._tokens(tokens, "the tokens")
        if not new:
            raise DecoderError("there is nothing to go on with: give at least one token")
        return self._run_prompt([anchor, *new], [*self.history, *new])

    def _run_prompt(self, tokens: list[int], history: list[int]) -> Round:
        """Run tokens through target and head, and emit the token after the history."""
        with self._or_as_before():
            with self.counters.phase("prefill"):
                if through_whole_layers(self._target.layers, len(tokens)):
                    hidden = self._prefill_layers(tokens)
                else:
                    hidden = self._prefill_chunks(tokens)
                logits = self._target.logits(hidden[:, -1:])[0]
                self._processing.begin(len(history))
                none = Drafts((), self._length)
                outcome = accept(none, logits, history, self._rule, self._processing)
                self._sync(logits, outcome.logprobs)
                self._processing.settle([*history, outcome.tokens[0]])  # strangers' code may fail
            self.history = [*history, outcome.tokens[0]]
        self._window = self._verified = self._settled = None
        return Round((), 0, outcome.tokens, logits, outcome.logprobs)

    @contextmanager
    def _or_as_before(self) -> Generator[None]:
        """Put caches, length and history back if the enclosed lines fail."""
        length, drafter, history = self._length, self._drafter, self.history
        caches, head_caches = list(self._caches), list(self._head_caches)
        head = None if drafter is None else drafter.place
        window, followed = None, self._processing.prompt_length
        if self._unrewindable is None:
            window = Window(self._target, self._caches, self._rewind)
        try:
            yield
        except BaseException:
            with self._or_unusable("putting the caches back"):
                if window is None:
                    self._broken = "a pass failed over a cache that cannot be rewound"
                else:
                    self._take_up(caches, head_caches)
                    window.abandon()
                self._length, self.history = length, history
                if drafter is not None and head is not None:
                    drafter.go_back(head)
                self._sync()
                self._processing.begin(followed)
                self._processing.settle(self.history)
            raise

    def _take_up(self, caches: list[Any], head_caches: list[Any]) -> None:
        """Take up caches: those from before a pass that quantised some, or the quantised ones."""
        self._caches[:], self._head_caches[:] = caches, head_caches
        if isinstance(self._given, MutableSequence):
            self._given[: len(caches) + len(head_caches)] = [*caches, *head_caches]

    @contextmanager
    def _or_unusable(self, what: str) -> Generator[None]:
        """Refuse any further use of the session if the enclosed lines fail."""
        try:
            yield
        except BaseException:
            self._broken = f"{what} failed half-way"
            raise

    def check_prompt(self, prompt: Sequence[int]) -> list[int]:
        """Refuse what `prefill` would refuse, without running anything; returns the tokens."""
        self._require_usable()
        if self.history:
            raise DecoderError("this session was prefilled already; start another one")
        tokens = self._tokens(prompt, "the prompt")
        if not tokens:
            raise DecoderError("the prompt is empty: give at least one token")
        return tokens

    def _chunks(self, tokens: list[int]) -> list[mx.array]:
        """The prompt in pieces [1, T], its last token alone."""
        cuts = [*range(0, len(tokens) - 1, self._step_size), len(tokens) - 1]
        ends = [*cuts[1:], len(tokens)]
        return [mx.array([tokens[a:b]]) for a, b in zip(cuts, ends, strict=True)]

    def _prefill_chunks(self, tokens: list[int]) -> mx.array:
        hidden = mx.zeros((1, 0))
        for chunk in self._chunks(tokens):
            self._quantise()
            hidden = forward(self._target, chunk, self._caches)
            self._length += chunk.shape[1]
            if self._drafter is not None:
                self._drafter.prefill(hidden, chunk)
            self._sync(hidden)
        return hidden

    def _prefill_layers(self, tokens: list[int]) -> mx.array:
        """As `_prefill_chunks`, but all chunks through one layer before the next.

        So each layer's experts are read from disk once, into one buffer; the head's likewise,
        for all pairs. What a layer sees of a chunk, and in what order, is the same.
        """
        chunks, before = self._chunks(tokens), self._length
        rows = [self._target.embed(chunk) for chunk in chunks]
        with whole_layers(self._target.layers):
            for index, layer in enumerate(self._target.layers):
                self._length = before
                for n, chunk in enumerate(chunks):
                    self._quantise(index)
                    rows[n] = layer(rows[n], chunk, self._caches[index])
                    self._length += chunk.shape[1]
                    mx.eval(rows[n], arrays_of([self._caches[index]]))
        if self._head is not None:
            with whole_layers(self._head.layers, at_once=True):
                self._prefill_head(rows, chunks, before)
        return rows[-1]

    def _prefill_head(self, rows: list[mx.array], chunks: list[mx.array], before: int) -> None:
        """Run every pair of a prompt through the head, chunk by chunk."""
        self._length = before
        for hidden, chunk in zip(rows, chunks, strict=True):
            self._quantise()
            self._length += chunk.shape[1]
            if self._drafter is not None:
                self._drafter.prefill(hidden, chunk)
            self._sync(hidden)

    def draft(self, num_draft_tokens: int) -> list[int]:
        """Let the head draft; its cache grows by that many rows until the round is settled.

        Fewer are drafted where caches are about to be quantised; see `mtp_decoder.quantised`.

        Raises:
            DecoderError: a negative or absurd number, no head, or a round still open.
        """
        return self._draft(check_count(num_draft_tokens), None)

    def inject(self, drafts: Sequence[int]) -> list[int]:
        """Take the given drafts in place of the head's; its cache runs along all the same.

        Raises:
            DecoderError: a draft outside the vocabulary, too many, or a round still open.
        """
        tokens = self._tokens(drafts, "the drafts")
        if len(tokens) > MAX_DRAFT_TOKENS:
            raise DecoderError(f"at most {MAX_DRAFT_TOKENS} drafts a round, not {len(tokens)}")
        return self._draft(len(tokens), tokens)

    def _draft(self, k: int, forced: Sequence[int] | None) -> list[int]:
        anchor = self.anchor
        self._require_closed(pay=False)
        if k:
            self.require_rewindable()
        caches = list(self._caches), list(self._head_caches)
        if self._quantisation is not None:
            with self.counters.phase("draft"):
                self._quantise()
        k = self._within_plain_rows(k)
        if forced is not None:
            forced = forced[:k]
        if self._drafter is None:
            if k and forced is None:
                raise DecoderError(NO_HEAD)
            given = list(forced or ())
            self._open = _OpenRound(self._length, len(self.history), None, given, caches)
            return list(given)
        place = self._drafter.place
        self._open = _OpenRound(self._length, len(self.history), place, [], caches)
        try:
            with self.counters.phase("draft"):
                made: Chain = self._drafter.draft(anchor, k, self._rule, self._length + 1, forced)
        except BaseException:
            self.cancel()
            raise
        self._open.drafts, self._open.laws = made
        return list(self._open.drafts)

    def _quantise(self, only: int | None = None) -> None:
        """Quantise keys and values that are due, in the given prompt cache too.

        Of every layer of target and head, or of `only` one of the target's.
        """
        setting = self._quantisation
        if setting is None or self._length < setting.start:
            return
        own = [*self._caches, *self._head_caches]
        made = [
            setting.quantised(cache) if only in (None, index) else cache
            for index, cache in enumerate(own)
        ]
        if all(old is new for old, new in zip(own, made, strict=True)):
            return
        mx.eval(arrays_of(made))  # may fail: first, while nothing has changed
        count = len(self._caches)
        self._take_up(made[:count], made[count:])

    def _within_plain_rows(self, k: int) -> int:
        most = None if self._quantisation is None else self._quantisation.most_drafts(self._length)
        return k if most is None else min(k, most)

    def verify(self, drafts: Sequence[int]) -> Verification:
        """Run [anchor, *drafts] through the target in one pass; the caches grow by K+1.

        Drafts that were neither drafted nor injected before are injected.

        Raises:
            DecoderError: a draft outside the vocabulary, other drafts than this round's,
                nothing prefilled, or a round still open.
        """
        if self._open is None:
            self.inject(drafts)
        opened = self._open
        assert opened is not None
        if opened.drafts != list(drafts) or opened.verified:
            raise DecoderError(f"this round's drafts are {opened.drafts}, not {list(drafts)}")
        tokens = mx.array([[self.anchor, *opened.drafts]])
        with self.counters.phase("verify"):
            self._window = self._verified = self._settled = None
            if self._unrewindable is None:
                self._window = Window(self._verifier, self._caches, self._rewind)
            opened.window, opened.verified = self._window, True
            self._length += tokens.shape[1]
            if self._window is None:  # a plain step, which nothing will undo
                hidden = forward(self._target, tokens, self._caches)
            else:
                hidden = self._window.run(tokens)
            logits = self._verifier.logits(hidden)[0]
            position = opened.length + 1
            told = verdict(logits, position, self._rule, self._processing)
            # Here, since to cut one out later takes MLX's thread a turn of its own.
            rows = () if self._drafter is None else tuple(mx.split(hidden, tokens.shape[1], axis=1))
            self._verified = Verification(
                tuple(opened.drafts), hidden, logits, position, opened.laws, told, rows
            )
            mx.eval(logits, hidden, told, rows, arrays_of(self._caches))
        return self._verified

    def accept(self) -> Acceptance:
        """Judge the drafts of the last verify pass; touches no cache.

        Raises:
            DecoderError: nothing was verified.
        """
        verified = self._require_verified()
        drafts = Drafts(verified.drafts, verified.position, verified.laws)
        own = self._sampler is None and not self._processing.active
        with self.counters.phase("accept", waited=own):
            outcome = accept(
                drafts,
                verified.logits,
                self.history,
                self._rule,
                self._processing,
                verified.verdict,
            )
            mx.eval(outcome.logprobs)
        return outcome

    def rewind(self, outcome: Acceptance, *, more: bool = False) -> None:
        """Settle the round: caches of target and head end at the accepted prefix.

        Can be called again with fewer accepted drafts (`cut`), until the next verify pass.

        Args:
            outcome: of `accept`.
            more: another round follows at once; see `round`.

        Raises:
            RewindError: more drafts accepted than the round holds, fewer than none, or tokens
                that are not the accepted drafts and one more.
        """
        self._require_usable()
        verified, window = self._require_verified(), self._window
        held = 1 if window is None else window.kept
        keep = outcome.accepted + 1
        if not 1 <= keep <= held:
            raise RewindError(
                f"cannot rewind to {outcome.accepted} accepted drafts: the round holds {held - 1}"
            )
        if len(outcome.tokens) != keep or outcome.tokens[:-1] != verified.drafts[: keep - 1]:
            raise RewindError(
                f"tokens {outcome.tokens} are not the first {outcome.accepted} of the drafts "
                f"{verified.drafts} and one more"
            )
        before = len(self.history) - len(self._settled.tokens if self._settled else ())
        if self._processing.active:  # a stranger's code: first, while nothing has changed
            with self.counters.phase("rewind"):
                self._processing.settle([*self.history[:before], *outcome.tokens])
        # An open round can be cancelled if this fails; a settled one has no other way back.
        guard = (
            self._or_unusable("cutting a settled round") if self._open is None else nullcontext()
        )
        with self.counters.phase("rewind", waited=not self._reads), guard:
            self.counters.rewinds += keep < held
            if window is not None:
                self.counters.rewind_bytes = window.nbytes()
                window.rewind(keep)
            self._length -= held - keep
            if self._drafter is not None:
                later = more and self._quantisation is None  # rows may be quantised by then
                drafts, accepted = verified.drafts, outcome.accepted
                row = verified.rows[accepted]
                self._drafter.settle(drafts, accepted, verified.hidden, row=row, later=later)
            self._sync()
        if self._settled is None:
            self.counters.count_round(len(verified.drafts), outcome.accepted)
        self.history[before:] = outcome.tokens  # not a new list, of a hundred thousand tokens, say
        self._settled = outcome
        self._open = None

    def cancel(self) -> None:
        """Undo an open round whole: caches of target and head as before it was drafted.

        Without an open round this does nothing. Where a cache cannot be rewound, and where this
        fails itself, the session refuses any further use.
        """
        opened = self._open
        if opened is None:
            return
        self._open = self._window = self._verified = self._settled = None
        with self.counters.phase("rewind"), self._or_unusable("cancelling a round"):
            if self._drafter is not None:
                assert opened.head is not None
                self._drafter.go_back(opened.head)
            if opened.window is not None:
                opened.window.rewind(0)
            elif opened.verified:
                self._broken = "a pass was given up over a cache that cannot be rewound"
            self._take_up(*opened.caches)
            self._length = opened.length
            del self.history[opened.tokens :]  # an interrupt came where all but this was settled
            self._sync()
            self._processing.settle(self.history)

    def cut(self, emitted: int) -> None:
        """Keep only the first `emitted` tokens of the round that was settled last.

        Raises:
            RewindError: no settled round, or it did not emit that many (at least one).
        """
        self._require_closed()
        settled = self._settled
        if settled is None or not 1 <= emitted <= len(settled.tokens):
            raise RewindError(f"cannot cut the last round to {emitted} emitted tokens")
        self.rewind(Acceptance(emitted - 1, settled.tokens[:emitted], settled.logprobs[:emitted]))
        self.counters.uncount_accepted(settled.accepted, min(settled.accepted, emitted))

    def round(
        self,
        num_draft_tokens: int = 0,
        *,
        drafts: Sequence[int] | None = None,
        more: bool = False,
    ) -> Round:
        """One whole round with the head's drafts, or with injected ones.

        If any part of it fails, the round is cancelled before the error goes on.

        Args:
            num_draft_tokens: K.
            drafts: to verify in place of the head's.
            more: another round follows at once. Rows of the head that accepted drafts still need
                may then wait for its pass over that round's first draft, and a given prompt
                cache lacks them till then; any other use of the session, `land` too, makes them.
        """
        self._require_closed(pay=False)
        self.counters.begin_call()
        try:
            made = self.draft(num_draft_tokens) if drafts is None else self.inject(drafts)
            verified = self.verify(made)
            outcome = self.accept()
            self.rewind(outcome, more=more)
        except BaseException:
            self.cancel()
            raise
        finally:
            self.counters.end_call()
        return Round(
            verified.drafts, outcome.accepted, outcome.tokens, verified.logits, outcome.logprobs
        )

    @property
    def can_run_ahead(self) -> bool:
        """Whether `step` may be called: nothing has to happen between two plain steps.

        Not where a head goes along, somebody looks at tokens or logits, rows are quantised, experts
        are read from disk, which would be counted, or a step could not be undone.
        """
        if self._teller is None:
            return False
        return self._ahead.under_way or not stores_of(self._target.layers)

    @property
    def _teller(self) -> Told | None:
        """The rule, if nothing of this session has to look at a token before the next step."""
        looks = (
            self._drafter is not None
            or self._unrewindable is not None
            or self._quantisation is not None
            or self._processing.active
        )
        # Not isinstance: a protocol takes as long to look up as a hundredth of a small step.
        return cast("Told", self._rule) if hasattr(self._rule, "tell") and not looks else None

    def step(self, *, more: bool) -> Round:
        """A round without drafts that leaves the next one under way if there is to be one `more`.

        Until then caches may hold one token more; any other use of the session undoes that first.
        All of the time is charged to `verify`; the clock does not wait for what is under way, and
        only where nothing is does it wait for what was submitted before.

        Raises:
            DecoderError: a round is open, or `can_run_ahead` is false.
        """
        if self._ahead.under_way and self._length - len(self.history) != self._unsaid:
            self.land()  # an interrupt came where the last step was all but settled
        rule, first = self._teller, not self._ahead.under_way
        apart = first and not self.can_run_ahead
        if self._open is not None or self._broken or rule is None or apart:
            self._require_closed()
            raise DecoderError("a step cannot run ahead here: call round instead")
        anchor = self.anchor
        if first:
            mx.synchronize()
            self._unsaid = self._length - len(self.history)
        start = self.counters.clock()
        try:
            token, step = self._ahead.step(anchor, self._length + 1, rule, more=more)
            self.history.append(token)  # from here on it is settled, wherever an interrupt comes
        except BaseException:
            self.counters.seconds["verify"] += self.counters.clock() - start
            self.land()
            raise
        self._length += 1
        self._ahead.settle(self._length)
        self.counters.count_round(0, 0)
        self._window = self._verified = self._settled = None
        self.counters.seconds["verify"] += self.counters.clock() - start
        return Round((), 0, (token,), step.logits, step.logprobs)

    def land(self) -> None:
        """Undo the step that `step` left under way, and make the rows that `round` left to be made.

        The time is charged to `rewind`, of waiting for the step too, and to `draft`.
        """
        self._land_step()
        drafter = self._drafter
        if drafter is None or not drafter.owes or self._open is not None or self._broken:
            return
        with self.counters.phase("draft"):
            try:
                drafter.pay()
            except BaseException:
                # An interrupt, say, and then nobody may ask again: a prompt cache given to this
                # session would be a row short. Twice is no harm, the pass begins anew.
                drafter.pay()
                raise

    def _land_step(self) -> None:
        if not self._ahead.under_way:
            return
        start = self.counters.clock()
        try:
            with self._or_unusable("undoing a step"):
                self._length = len(self.history) + self._unsaid
                self._ahead.undo(self._length)
        finally:
            self.counters.seconds["rewind"] += self.counters.clock() - start

    def state(self) -> dict[str, mx.array]:
        """Every array of every cache, by name; see `mtp_decoder.state`."""
        self.land()
        found = named_state(self._target.layers, self._caches, "layers")
        if self._head is not None and self._drafter is not None:
            found |= named_state(self._head.layers, self._head_caches, "head")
            if self._drafter.hidden is not None:
                found["head.frontier.hidden"] = mx.array(self._drafter.hidden)
        return found

    def decode_with(
        self,
        *,
        rewind: Rewind | str,
        head_rows: HeadRows | str,
        sampling: Sampling | None = None,
    ) -> None:
        """Use another strategy and policy, and sample otherwise, from the next round on.

        Raises:
            DecoderError: a round is open, or a sampler decides and `sampling` was given.
        """
        self._require_closed()
        if sampling is not None:
            self._rule = make_rule(sampling, self._sampler)
        self._rewind = member_of(Rewind, rewind, "rewind")
        self._head_rows = member_of(HeadRows, head_rows, "head_rows")
        if self._drafter is not None:
            self._drafter.policy = self._head_rows

    def fork(self) -> Session:
        """An independent session at the same place; counters start anew.

        Raises:
            DecoderError: a round is open.
        """
        self._require_closed()
        cache = [copy_cache(c) for c in (*self._caches, *self._head_caches)]
        if self._frontier is not None:
            cache.append(copy_cache(self._frontier))
        twin = object.__new__(Session)
        vars(twin).update(vars(self))
        twin._given = cache
        twin._caches, twin._head_caches, twin._frontier = self._split(cache)
        twin._drafter = twin._make_drafter()
        twin._open = twin._window = twin._verified = twin._settled = None
        twin._ahead = Ahead(twin._target, twin._caches)
        twin._processing = self._processing.fork()
        twin.history = list(self.history)
        twin.counters = Counters()
        return twin

    @property
    def policies(self) -> tuple[Rewind, HeadRows]:
        """Strategy and policy that the next round decodes with."""
        return self._rewind, self._head_rows

    def save(self, file: Path | str) -> None:
        """Write the session to a file, from which `restore` goes on to the bit.

        The file is whole or not there; one that was there before is replaced. Sampler and logits
        processors are not in it.

        Raises:
            DecoderError: a round is open, or the session is unusable.
            SessionFileError: the file cannot be written.
        """
        self._require_closed()
        own = [*self._caches, *self._head_caches]
        caches = own if self._frontier is None else [*own, self._frontier]
        saved = SavedSession(self._model(), self._settings(), tuple(self.history), caches)
        write_session(Path(file), saved)

    def restore(self, file: Path | str) -> None:
        """Take over a saved session in place of this one's, caches in a given prompt cache too.

        Strategy and policies come from the file; counters go on. A file that is refused changes
        nothing; one that is taken makes an unusable session usable again. A token mask or processor
        that fails where it is told of the file's tokens leaves the session unusable.

        Raises:
            DecoderError: a round is open.
            SessionFileError: the file is damaged, of another format version, of another model,
                or of other `kv_bits` and the like.
        """
        self._land_step()
        if self._open is not None:
            raise DecoderError("a round is open: settle it with rewind, or cancel it")
        path = Path(file)
        empty = make_prompt_cache(self._target, self._head)
        setting = self._quantisation
        kinds = [] if setting is None else [setting.quantised(cache) for cache in empty]
        saved = read_session(path, [*empty, *kinds])
        try:
            self._check_saved(saved)
        except CacheMismatchError as error:
            raise SessionFileError(f"{path}: {error}") from error
        with self._or_unusable("taking over a saved session"):
            self._take_over(saved)

    def _check_saved(self, saved: SavedSession) -> None:
        """Refuse what this session's model and settings cannot go on from.

        Raises:
            CacheMismatchError: says what is not this session's.
        """
        if saved.model != self._model():
            raise CacheMismatchError(
                "it is of another model, or was saved with another device, mlx version or way of "
                "compiling; restore it where it was saved"
            )
        mine, theirs = self._settings()["kv"], saved.settings["kv"]
        if mine != theirs:
            raise CacheMismatchError(
                f"it was saved with keys and values stored as {theirs}, this session stores them "
                f"as {mine}; give it the same kv_bits, kv_group_size and quantized_kv_start"
            )
        caches, head_caches, _ = self._split(saved.caches)
        length = check_content(caches, self._target)
        pairs = max(length - 1, 0)
        if self._head is not None:
            pairs = check_head_content(head_caches, self._target, self._head)
        if (saved.settings["length"], pairs) != (length, max(length - 1, 0)):
            raise CacheMismatchError(f"it holds {length} tokens and {pairs} pairs of the head")

    def _model(self) -> str:
        if not self._fingerprint:
            self._fingerprint = fingerprint(self._target, self._head)
        return self._fingerprint

    def _settings(self) -> dict[str, Any]:
        rewind, head_rows = self.policies
        quantisation = self._quantisation
        return {
            "length": self._length,
            "prompt_length": self._processing.prompt_length,
            "rewind": rewind.value,
            "head_rows": head_rows.value,
            "prefill_step_size": self._step_size,
            "kv": None if quantisation is None else asdict(quantisation),
        }

    def _take_over(self, saved: SavedSession) -> None:
        """Put a saved session's content into this one's containers."""
        settings = saved.settings
        count, own = len(self._caches), [*self._caches, *self._head_caches]
        for index, made in enumerate(saved.caches[: len(own)]):
            if type(own[index]) is type(made):
                vars(own[index]).clear()
                vars(own[index]).update(vars(made))
            else:
                own[index] = made
        self._take_up(own[:count], own[count:])
        if self._frontier is not None:
            self._frontier[0] = saved.caches[-1][0]
        self._length = settings["length"]
        self._drafter = self._make_drafter()
        self._broken = ""
        self._window = self._verified = self._settled = None
        self._step_size = settings["prefill_step_size"]
        self.history = list(saved.history)
        self._processing.begin(settings["prompt_length"])
        self._processing.settle(self.history)
        self.decode_with(rewind=settings["rewind"], head_rows=settings["head_rows"])

    def _require_usable(self, *, pay: bool = True) -> None:
        if pay:
            self.land()
        else:
            self._land_step()
        if self._broken:
            raise DecoderError(
                f"this session is unusable: {self._broken}; start another one, with new caches"
            )

    def _require_closed(self, *, pay: bool = True) -> None:
        self._require_usable(pay=pay)
        if self._open is not None:
            raise DecoderError("a round is open: settle it with rewind, or cancel it")

    def _require_verified(self) -> Verification:
        if self._verified is None:
            raise DecoderError("nothing was verified yet: call verify first")
        return self._verified

    def _tokens(self, tokens: Sequence[int], what: str) -> list[int]:
        """Token ids as plain ints, each in the vocabulary."""
        if isinstance(tokens, str | bytes):
            raise DecoderError(f"{what} must be token ids, not text: encode it with a tokenizer")
        try:
            found = [operator.index(token) for token in tokens]
        except TypeError as error:
            raise DecoderError(f"{what} must be a flat sequence of token ids: {error}") from error
        for token in found:
            if not 0 <= token < self._target.vocab_size:
                raise DecoderError(
                    f"{what}: token {token} is outside the vocabulary of {self._target.vocab_size}"
                )
        return found

    def _sync(self, *arrays: mx.array) -> None:
        """Evaluate every cache, so that no phase leaves work to the next."""
        if self._frontier is not None and self._drafter is not None:
            self._frontier[0] = self._drafter.hidden
            held = [*self._caches, *self._head_caches, self._frontier]
        else:
            held = self._caches
        mx.eval(*arrays, arrays_of(held))


def check_count(num_draft_tokens: int) -> int:
    """A number of drafts a round can have, as a plain int.

    Raises:
        DecoderError: no whole number, or out of range.
    """
    count = whole_number(num_draft_tokens, "num_draft_tokens")
    if not 0 <= count <= MAX_DRAFT_TOKENS:
        raise DecoderError(f"num_draft_tokens must be in 0..{MAX_DRAFT_TOKENS}, not {count}")
    return count


def whole_number(value: Any, what: str) -> int:
    """Any kind of integer, NumPy's too, as a plain int.

    Raises:
        DecoderError: no whole number.
    """
    try:
        return operator.index(value)
    except TypeError as error:
        raise DecoderError(f"{what} must be a whole number: {error}") from error


def check_model(target: object, head: object = None) -> None:
    """Refuse what lacks a part of `Target` or of `Head`; mlx-lm's own model lacks some.

    Raises:
        DecoderError: names the class, the missing parts, and what makes a target of a model.
    """
    missing = [name for name in _OF_A_TARGET if not hasattr(target, name)]
    if missing:
        raise DecoderError(
            f"a {_class_of(target)} is no target: it has no {', '.join(missing)}; wrap a model of "
            "mlx-lm's Qwen classes in mtp_decoder.qwen.target.QwenTarget"
        )
    missing = [name for name in _OF_A_HEAD if head is not None and not hasattr(head, name)]
    if missing:
        raise DecoderError(f"a {_class_of(head)} is no head: it has no {', '.join(missing)}")


def _class_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _why_unrewindable(target: Target, caches: Sequence[Any]) -> UnrewindableCacheError | None:
    try:
        check_rewindable(target.layers, caches)
    except UnrewindableCacheError as error:
        return error
    return None
