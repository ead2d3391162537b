"""`generate_step`: tokens one by one, in mlx-lm's manner, with drafts of the model's own head.

Wherever generation ends — end of text, a stop sequence, the budget, a consumer that closes
the generator — the caches hold every token handed out but the last one. In between, and without
drafts, they may hold that one, too: the next step is under way while a token is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, cast

import mlx.core as mx

from mtp_decoder.counters import Counters
from mtp_decoder.drafting import HeadRows
from mtp_decoder.errors import DecoderError, described
from mtp_decoder.policy import Depth, DepthPolicy, Fixed, RoundCost, make_policy
from mtp_decoder.processing import LogitsProcessor, TokenMask
from mtp_decoder.rewind import Rewind
from mtp_decoder.rules import Sampler
from mtp_decoder.sampling import AcceptBy, Sampling
from mtp_decoder.session import NO_HEAD, Round, Session, check_count, check_model, whole_number
from mtp_decoder.stopping import Stops
from mtp_decoder.target import Head, Target

Emission = tuple[int, mx.array, bool]
DraftSource = Callable[[Sequence[int], int], Sequence[int]]


def generate_step(  # noqa: PLR0913  (mlx-lm's keyword arguments, under mlx-lm's names)
    prompt: Sequence[int] | mx.array,
    model: Target,
    head: Head | None = None,
    *,
    num_draft_tokens: int = 3,
    depth_policy: DepthPolicy | Depth | str = Depth.FIXED,
    max_tokens: int = 256,
    sampler: Sampler | None = None,
    temp: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    seed: int = 0,
    acceptance: AcceptBy | str = AcceptBy.MATCH,
    logits_processors: Sequence[LogitsProcessor] | None = None,
    token_mask: TokenMask | None = None,
    prompt_cache: Sequence[Any] | None = None,
    prefill_step_size: int = 2048,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = 0,
    row_exact: bool = False,
    rewind: Rewind | str = Rewind.TAPE,
    head_rows: HeadRows | str = HeadRows.DRAFT,
    eos_token_ids: Sequence[int] = (),
    stop_sequences: Sequence[Sequence[int]] = (),
    stops: Stops | None = None,
    draft_source: DraftSource | None = None,
) -> Generator[Emission, None, None]:
    """Yield tokens after a prompt.

    Bad arguments are refused here, before the first token is asked for and before any cache
    is touched.

    Args:
        prompt: token ids; at least one.
        model: the target.
        head: its MTP head; needed for `num_draft_tokens` above 0.
        num_draft_tokens: K, drafts a round; fewer where the budget ends.
        depth_policy: how many of them each round drafts: `fixed`, all; `streak`, none for a while
            after rounds that accepted nothing; `rate`, as many as pay by measured cost. An object
            of `mtp_decoder.policy` can be handed from request to request.
        max_tokens: tokens to emit at most; -1 for no limit.
        sampler: log-probabilities [rows, V] to token ids [rows], in place of the next six.
        temp: temperature; 0 takes the likeliest token.
        top_p: keep the likeliest tokens whose probabilities come to this; 0 and 1 keep all.
        top_k: keep this many of the likeliest tokens; 0 keeps all.
        min_p: keep tokens at least this times as likely as the likeliest; 0 keeps all.
        seed: of every random number. With `match` it settles the tokens, whatever K is.
        acceptance: `match`, a draft stands if it is the token that would be sampled without
            drafts; or `rejection`, with probability min(1, p/q).
        logits_processors: (tokens so far, logits [1, V]) to logits [1, V]; one with a state
            that follows the emitted tokens has `advance`, `rewind` and `fork` besides.
        token_mask: which tokens may come next, such as a grammar's matcher; see
            `mtp_decoder.TokenMask`.
        prompt_cache: from `make_prompt_cache(model, head)`; updated in place.
        prefill_step_size: prompt tokens a prefill pass.
        kv_bits: bits of a quantised key or value: 2, 4 or 8; None keeps them as they are.
        kv_group_size: how many of them share a scale: 32, 64 or 128.
        quantized_kv_start: tokens in the caches from which on they are quantised.
        row_exact: verify every row as a one-token step computes it, so that the tokens are those
            of K=0 on any backend; slower.
        rewind: strategy for state that cannot be cut back.
        head_rows: what the head's rows of accepted drafts are made from.
        eos_token_ids: tokens that end generation; emitted, then it ends.
        stop_sequences: token sequences that end generation once emitted.
        stops: in place of both, perhaps with stop strings; `stream_generate` makes one.
        draft_source: drafts in place of the head's, from (all tokens so far, K) to at most K
            token ids; a prompt lookup, say. The head, if there is one, is kept in step.

    Yields:
        Token id, its log-probabilities [V], and whether the head drafted it.

    Raises:
        DecoderError: an argument no decoding is possible with; the message says which.
    """
    check_model(model, head)
    check_arguments(
        num_draft_tokens,
        max_tokens,
        has_drafts=head is not None or draft_source is not None,
    )
    stops = stops or Stops(eos_token_ids, stop_sequences)
    policy = make_policy(depth_policy)
    session = Session(
        model,
        head if num_draft_tokens or prompt_cache is not None else None,
        rewind=rewind,
        head_rows=head_rows,
        sampler=sampler,
        sampling=Sampling(temp, top_p, top_k, min_p, seed, acceptance),
        logits_processors=logits_processors,
        token_mask=token_mask,
        prompt_cache=prompt_cache,
        prefill_step_size=prefill_step_size,
        kv_bits=kv_bits,
        kv_group_size=kv_group_size,
        quantized_kv_start=quantized_kv_start,
        row_exact=row_exact,
    )
    given = cast("list[int]", prompt.tolist()) if isinstance(prompt, mx.array) else prompt
    tokens = session.check_prompt(given)
    if num_draft_tokens:
        session.require_rewindable()
    return emit(
        session,
        tokens,
        num_draft_tokens=num_draft_tokens,
        max_tokens=max_tokens,
        stops=stops,
        draft_source=draft_source,
        policy=policy,
    )


def check_arguments(num_draft_tokens: int, max_tokens: int, *, has_drafts: bool) -> None:
    """Refuse numbers no decoding is possible with.

    Raises:
        DecoderError: says which, and what is possible.
    """
    check_count(num_draft_tokens)
    if whole_number(max_tokens, "max_tokens") < -1:
        raise DecoderError(f"max_tokens must be -1 (no limit) or more, not {max_tokens}")
    if num_draft_tokens and not has_drafts:
        raise DecoderError(NO_HEAD)


def emit(
    session: Session,
    prompt: Sequence[int],
    *,
    num_draft_tokens: int,
    max_tokens: int = -1,
    stops: Stops | Sequence[Sequence[int]] = (),
    draft_source: DraftSource | None = None,
    policy: DepthPolicy | None = None,
    on_round: Callable[[Round], None] | None = None,
) -> Generator[Emission, None, None]:
    """Drive a session as `generate_step` does; the caller keeps it and its counters.

    `on_round` is shown every finished round, before anything of it is emitted.
    """
    if max_tokens == 0:
        return
    done = 0
    policy = policy or Fixed()
    ends_at = stops if isinstance(stops, Stops) else Stops(stop_sequences=stops)
    policy.begin()
    outcome = session.prefill(prompt)
    # Another policy wants to know what each round costs by itself.
    fixed = type(policy) is Fixed
    plain = not num_draft_tokens and draft_source is None and fixed
    try:
        while True:
            new = len(outcome.tokens)
            left = new if max_tokens < 0 else min(new, max_tokens - done)
            count = _until(ends_at, session.history, new, left, done)
            ends = count < new or ends_at.ended_after is not None
            if count < new:
                session.cut(count)
            handed_out = 0
            try:
                for token, row in zip(
                    outcome.tokens[:count], _rows(outcome.logprobs), strict=False
                ):
                    handed_out += 1
                    yield token, row, handed_out <= outcome.accepted
            finally:
                if 0 < handed_out < count:
                    session.cut(handed_out)
            done += count
            if ends or done == max_tokens:
                return
            budget = num_draft_tokens if max_tokens < 0 else max_tokens - done - 1
            if plain and session.can_run_ahead:
                outcome = session.step(more=max_tokens < 0 or done + 1 < max_tokens)
            else:
                k = _depth(policy, min(num_draft_tokens, budget))
                before, drafts = dict(session.counters.seconds), None
                if draft_source is not None:
                    with session.counters.phase("draft"):
                        drafts = _drafts(draft_source, list(session.history), k)
                more = fixed and (max_tokens < 0 or done + k + 1 < max_tokens)
                outcome = session.round(k, drafts=drafts, more=more)
                policy.observe(_cost(outcome, before, session.counters))
            if on_round is not None:
                on_round(outcome)
    finally:
        session.land()


def _until(ends_at: Stops, history: Sequence[int], new: int, left: int, done: int) -> int:
    """How many of the last `new` tokens are emitted: up to a stop, and at most those `left`."""
    tail = history[-(new + ends_at.reach) :]
    return ends_at.until(tail[: len(tail) - new + left], left, done)


def _rows(logprobs: mx.array) -> Iterable[mx.array]:
    """The rows of logprobs [n, V]. One is iterated over by way of a split, which takes longer."""
    return logprobs if len(logprobs) > 1 else (logprobs.squeeze(0),)


def _drafts(source: DraftSource, history: Sequence[int], k: int) -> list[int]:
    made = source(history, k)
    try:
        return list(made)[:k]
    except TypeError as error:
        raise DecoderError(
            f"the draft source returned {described(made)}: let it return a list of token ids, an "
            "empty one for no drafts"
        ) from error


def _depth(policy: DepthPolicy, most: int) -> int:
    k = whole_number(policy.depth(most), "the number of drafts that the depth policy chose")
    if not 0 <= k <= most:
        raise DecoderError(f"the depth policy chose {k} drafts where 0 to {most} are possible")
    return k


def _cost(outcome: Round, before: dict[str, float], counters: Counters) -> RoundCost:
    """What a round cost, by the session's own clock."""
    spent = {phase: seconds - before[phase] for phase, seconds in counters.seconds.items()}
    return RoundCost(
        drafted=len(outcome.drafts),
        accepted=outcome.accepted,
        draft_seconds=spent["draft"],
        verify_seconds=spent["verify"] + spent["accept"],
        rewind_seconds=spent["rewind"],
    )
