"""Sampled tokens with drafts, under exact-match acceptance, against K=0 with the same seed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from mtp_conformance import (
    Capability,
    Cell,
    Group,
    Options,
    Oracles,
    Witness,
    case,
    require_tokens,
)
from mtp_conformance.grid import AGREEING_MODELS, spread, with_trained

LENGTH = 16
LENGTHS = (24, 96)
"""Tokens of own drafts; the second where every draft of the first stood, or none, then of other
prompts."""
FEW = ("window", "gdn+mlx-lm", "ple", "flash-next")


def _hot(options: Options, *, seed: int = 3) -> Options:
    """Sampling with every cut at its ordinary setting."""
    return replace(options, temperature=0.9, top_p=0.9, top_k=40, min_p=0.05, seed=seed)


def _plain(group: Group, options: Options, length: int = LENGTH) -> Sequence[int]:
    return group.open(options).generate(group.prompt, num_draft_tokens=0, max_tokens=length).tokens


@case(
    "sample.stream.guessed-drafts",
    clause="sampled-stream",
    needs=("stream", "guess", "sampling"),
    oracle="K=0 of the same runtime with the same seed",
    witness="accepts and rejects",
    since="0.1.0",
    cells=spread(models=FEW, depths=(4,)),
)
def test_guessed_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A seed gives the tokens of K=0, whatever K is and whichever drafts are wrong."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.SAMPLING)
    group, options, k = oracles.group(cell), _hot(oracles.options(cell)), cell.k or 0
    expected = _plain(group, options)
    guess = [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(expected)]
    with oracles.bits_against_steps(group, k):
        made = group.open(options).generate(
            group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess
        )
        compared = require_tokens(made.tokens[:LENGTH], expected, what="K=0 with the same seed")
    witness.add(compared=compared, **made.engagement)
    witness.require(accepted=1, rejected=1)


@case(
    "sample.stream.own-drafts",
    clause="sampled-stream",
    needs=("stream", "sampling"),
    oracle="K=0 of the same runtime with the same seed",
    witness="accepts and rejects of the head's own drafts, from models whose head is often right",
    since="0.1.0",
    cells=with_trained(spread(models=AGREEING_MODELS, depths=(3,)), depths=(3,)),
)
def test_own_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A seed gives the tokens of K=0 with the head's own drafts."""
    oracles.need(Capability.STREAM, Capability.SAMPLING)
    k = cell.k or 0
    options = replace(oracles.options(cell), temperature=0.5, seed=4)
    for group, length in oracles.until_seen(cell, witness, LENGTHS):
        expected = _plain(group, options, length)
        with oracles.bits_against_steps(group, k):
            made = group.open(options).generate(group.prompt, num_draft_tokens=k, max_tokens=length)
            compared = require_tokens(made.tokens[:length], expected, what="K=0 with the same seed")
        witness.add(compared=compared, **made.engagement)
    witness.require(accepted=1, rejected=1)


@case(
    "sample.stream.likeliest-drafts",
    clause="sampled-stream",
    needs=("drafts", "logits", "sampling"),
    oracle="K=0 of the same runtime with the same seed",
    witness="rejected drafts, each the likeliest token",
    since="0.1.0",
    cells=spread(models=("window",), depths=(1,)),
)
def test_likeliest_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """The likeliest token, drafted where another one is sampled, does not stand."""
    oracles.need(Capability.DRAFTS, Capability.LOGITS, Capability.SAMPLING)
    group, options = oracles.group(cell), replace(oracles.options(cell), temperature=1.0, seed=6)
    with oracles.bits_against_steps(group, 1):
        plain, judged = group.open(options), group.open(options)
        said = list(plain.prefill(group.prompt).tokens)
        tokens = list(judged.prefill(group.prompt).tokens)
        for _ in range(LENGTH):
            outcome = plain.round(())
            assert outcome.logits is not None
            likeliest = cast("int", outcome.logits[0].argmax().item())
            said += outcome.tokens
            if len(tokens) > len(said) - 1:
                continue  # the last draft stood, and a bonus came with it
            made = judged.round([likeliest])
            tokens += made.tokens
            witness.add(drafted=1, accepted=made.accepted, rejected=1 - made.accepted)
        compared = require_tokens(tokens[: len(said)], said, what="K=0 with the same seed")
    witness.add(compared=compared)
    witness.require(rejected=1)


@case(
    "sample.stream.after-a-stop",
    clause="sampled-stream",
    needs=("stream", "guess", "drafts", "sampling"),
    oracle="K=0 of the same runtime with the same seed",
    witness="accepts, and stops inside a block",
    since="0.1.0",
    cells=spread(models=("gdn", "flash-next"), depths=(3,)),
)
def test_after_a_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever a budget ends inside a block, the tokens that follow are still those of K=0."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.DRAFTS, Capability.SAMPLING)
    oracles.held_after_stop(1)
    group, options, k = oracles.group(cell), _hot(oracles.options(cell)), cell.k or 0
    expected = _plain(group, options)
    for budget in range(2, k + 3):
        session = group.open(options)
        with oracles.bits_against_steps(group, k):
            made = session.generate(
                group.prompt, num_draft_tokens=k, max_tokens=budget, guess=expected
            )
            tokens = [*made.tokens, *session.round(expected[budget : budget + k]).tokens]
            tokens += session.round(()).tokens
            due = expected[: budget + k + 2]
            compared = require_tokens(tokens, due, what="K=0 with the same seed")
        witness.add(compared=compared, inside=int(budget <= k), **made.engagement)
    witness.require(accepted=k, inside=1)
