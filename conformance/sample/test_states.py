"""Logits processors and token masks act on every emitted token as they do without drafts."""

from collections.abc import Sequence
from dataclasses import replace

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
from mtp_conformance.grid import spread

LENGTH = 16
PENALTY = {"repetition_penalty": 0.6, "repetition_context_size": 6}
"""Below 1 it favours recent tokens; random models repeat too little for one above 1 to show."""
FEW = ("gdn", "ple", "flash-next")
WHEEL = (tuple(range(0, 256, 2)), (33,), tuple(range(1, 256, 2)), (97, 98, 99, 100), (7, 8, 9))
"""Allowed tokens, one list after the other: a mask a step ahead or behind allows none of them."""


def _decode(
    group: Group, options: Options, k: int, witness: Witness, guess: Sequence[int] | None = None
) -> list[int]:
    session = group.open(options)
    made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=LENGTH, guess=guess)
    witness.add(**made.engagement)
    return list(made.tokens[:LENGTH])


def _partly_right(stream: Sequence[int]) -> list[int]:
    return [(t + 1) % 256 if i % 5 == 3 else t for i, t in enumerate(stream)]


@case(
    "sample.processor.penalty",
    clause="processor-state",
    needs=("stream", "guess", "penalty"),
    oracle="K=0 of the same runtime with the same penalty",
    witness="accepts and rejects, and a penalty that changes the tokens",
    faults=("S8", "S10"),
    since="0.1.0",
    cells=spread(models=FEW, depths=(4,)),
)
def test_penalty(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A repetition penalty acts on every emitted token as without drafts, and on no wrong draft."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.PENALTY)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), **PENALTY)
    expected = _decode(group, options, 0, Witness())
    witness.add(bites=int(expected != group.stream(LENGTH)))
    with oracles.bits_against_steps(group, k):
        tokens = _decode(group, options, k, witness, _partly_right(expected))
        witness.add(compared=require_tokens(tokens, expected, what="K=0 with the same penalty"))
    witness.require(accepted=1, rejected=1, bites=1)


@case(
    "sample.mask.guessed-drafts",
    clause="grammar-state",
    needs=("stream", "guess", "mask"),
    oracle="K=0 of the same runtime under the same mask",
    witness="accepts and rejects",
    faults=("S11", "S13"),
    since="0.1.0",
    cells=spread(models=FEW, depths=(4,)),
)
def test_mask(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Under a token mask, one that forces tokens included, the tokens are those of K=0."""
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.MASK)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL)
    expected = _decode(group, options, 0, Witness())
    _require_allowed(expected)
    with oracles.bits_against_steps(group, k):
        tokens = _decode(group, options, k, witness, _partly_right(expected))
        witness.add(compared=require_tokens(tokens, expected, what="K=0 under the same mask"))
    witness.require(accepted=1, rejected=1)


@case(
    "sample.mask.after-a-stop",
    clause="grammar-state",
    needs=("stream", "guess", "drafts", "mask"),
    oracle="K=0 of the same runtime under the same mask",
    witness="accepts, and stops inside a block",
    faults=("S11",),
    since="0.1.0",
    cells=spread(models=("gdn", "flash-next"), depths=(4,)),
)
def test_mask_after_a_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever emission ends inside a block, the mask goes on from the last emitted token.

    It ends by a stop token where that is the first of its kind, else by the budget.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.DRAFTS, Capability.MASK)
    oracles.held_after_stop(1)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL)
    expected = _decode(group, options, 0, Witness())
    for budget in range(2, k + 3):
        session = group.open(options)
        with oracles.bits_against_steps(group, k):
            last, before = expected[budget - 1], expected[: budget - 1]
            made = session.generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=budget if last in before else LENGTH,
                eos_token_ids=() if last in before else (last,),
                guess=expected,
            )
            tokens = [*made.tokens, *session.round(expected[budget : budget + 2]).tokens]
            tokens += session.round(()).tokens
            compared = require_tokens(
                tokens, expected[: budget + 4], what="K=0 under the same mask"
            )
        witness.add(compared=compared, inside=int(budget <= k), **made.engagement)
    witness.require(accepted=k, inside=1)


def _require_allowed(tokens: Sequence[int]) -> None:
    for index, token in enumerate(tokens):
        assert token in WHEEL[index % len(WHEEL)], f"token {index} is {token}, which is not allowed"
