"""A fork under a token mask."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import spread
from mtp_conformance.group import Group
from mtp_conformance.protocol import Options

WHEEL = ((65, 66, 67), (97, 98, 99), (48, 49), (33,), (35, 36, 37))
"""Lists of different tokens, so that being a place off shows at once."""
BEFORE, AFTER = 4, 6


@case(
    "sample.mask.fork",
    clause="grammar-state",
    needs=("drafts", "fork", "mask"),
    oracle="K=0 of the same runtime under the same mask",
    witness="accepts and rejects",
    since="0.1.0",
    cells=spread(models=("gdn",), depths=(2,)),
)
def test_mask_fork(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A fork and its original, moving in turn, each go on from the last token they emitted."""
    oracles.need(Capability.DRAFTS, Capability.FORK, Capability.MASK)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL)
    expected = _plain(group, options)
    with oracles.bits_against_steps(group, k):
        original = group.open(options)
        said = list(original.prefill(group.prompt).tokens)
        _decode(original, said, expected, witness, BEFORE, k)
        fork, fork_said = original.fork(), list(said)
        for length in range(BEFORE + 1, AFTER + BEFORE):
            for session, tokens in ((fork, fork_said), (original, said)):
                _decode(session, tokens, expected, witness, length, k)
        for tokens, what in ((fork_said, "the fork"), (said, "the original")):
            compared = require_tokens(
                tokens, expected[: len(tokens)], what=f"K=0 under the same mask ({what})"
            )
            witness.add(compared=compared)
    witness.require(accepted=1, rejected=1)


def _plain(group: Group, options: Options) -> list[int]:
    session = group.open(options)
    tokens = list(session.prefill(group.prompt).tokens)
    while len(tokens) < BEFORE + AFTER + 8:
        tokens += session.round(()).tokens
    return tokens


def _decode(
    session: CheckedSession,
    said: list[int],
    expected: list[int],
    witness: Witness,
    length: int,
    k: int,
) -> None:
    """Rounds of k drafts, the last of them wrong every second time, until so many tokens."""
    while len(said) < length:
        drafts = expected[len(said) : len(said) + k]
        if len(said) % 2:
            drafts = [*drafts[:-1], (drafts[-1] + 1) % 256]
        outcome = session.round(drafts)
        said += outcome.tokens
        rejected = len(drafts) - outcome.accepted
        witness.add(drafted=len(drafts), accepted=outcome.accepted, rejected=rejected)
