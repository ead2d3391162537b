"""Sampled and steered tokens of a session that is cancelled, saved, restored and gone on with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conformance.sample.test_steered import WHEEL
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
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import spread

TURNS = ((97, 256, 33, 101), (117, 111), (97, 105, 115, 33, 99))
"""What the user says next, time after time: an end of text, and odd tokens."""
SETTINGS = {
    **{"temperature": 2.0, "top_k": 40, "seed": 8},
    **{"repetition_penalty": 0.2, "repetition_context_size": 40},
}
"""Hot, so that numbers decide, and a penalty that favours recent tokens enough for them to win."""
BEFORE, AFTER = 4, 3
"""Tokens emitted before the save, and after each of what follows."""


@case(
    "sample.stream.goes-on",
    clause="sampled-stream",
    needs=("drafts", "sampling", "penalty", "mask", "cancel", "save", "continue"),
    oracle="K=0 of the same runtime with the same seed, penalty and mask, cold over all tokens",
    witness="accepts and rejects, and a next turn of either session",
    faults=("S7", "S10", "S11"),
    since="0.1.0",
    cells=spread(models=("window", "ple"), depths=(2,), not_by_default=("ple",)),
)
def test_goes_on(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """After cancelled rounds, a restore and a next turn the tokens are those of a cold K=0 run.

    Random numbers hang on the place in the whole sequence, the penalty sees all of it, and the mask
    is where the tokens emitted since the last prompt put it.
    """
    oracles.need(Capability.DRAFTS, Capability.SAMPLING, Capability.PENALTY, Capability.MASK)
    oracles.need(Capability.CANCEL, Capability.SAVE, Capability.CONTINUE)
    group, k, file = oracles.group(cell), cell.k or 0, tmp_path / "session"
    options = replace(oracles.options(cell), allowed_tokens=WHEEL, **SETTINGS)
    with oracles.bits_against_steps(group, k):
        due = _cold(group, options, group.prompt, BEFORE + AFTER + 2 * k)
        session, other = (group.open(options) for _ in range(2))
        said = _go_on(session, session.prefill(group.prompt).tokens, due, BEFORE, k, witness)
        session.save(file)
        other.prefill(group.prompt[::-1])
        other.round(())
        other.restore(file)
        for one in (session, other):
            tokens = _go_on(one, said, due, BEFORE + AFTER, k, witness)
            prompt, following = [*group.prompt, *tokens], list[int]()
            for turn in TURNS:
                prompt += turn
                length = 2 * k + 2 if turn == TURNS[-1] else 1
                following = _cold(group, options, prompt, length)
                prompt += _go_on(one, one.extend(turn).tokens, following, 1, k, witness)
                witness.add(turns=1)
            _go_on(one, prompt[-1:], following, 2, k, witness)
    witness.require(accepted=1, rejected=1, turns=2 * len(TURNS))


def _cold(group: Group, options: Options, prompt: Sequence[int], length: int) -> list[int]:
    """Tokens of K=0 after a prompt."""
    session = group.open(options)
    tokens = list(session.prefill(prompt).tokens)
    while len(tokens) < length:
        tokens += session.round(()).tokens
    return tokens


def _go_on(
    session: CheckedSession,
    said: Sequence[int],
    due: Sequence[int],
    until: int,
    k: int,
    witness: Witness,
) -> list[int]:
    """Rounds of drafts, at times the last of them wrong, each after one that is given up."""
    tokens = list(said)
    while len(tokens) < until:
        drafts = list(due[len(tokens) : len(tokens) + k])
        session.cancel(drafts)
        if len(tokens) % 4 == 1:
            drafts[-1] = (drafts[-1] + 1) % 256
        outcome = session.round(drafts)
        tokens += outcome.tokens
        witness.add(accepted=outcome.accepted, rejected=len(drafts) - outcome.accepted)
    what = "a cold K=0 run with the same seed, penalty and mask"
    witness.add(compared=require_tokens(tokens, due[: len(tokens)], what=what))
    return tokens
