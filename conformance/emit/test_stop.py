"""End of text and stop sequences end decoding at every index of a block."""

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.grid import spread


@case(
    "emit.stop.every-index",
    clause="emitted-frontier",
    needs=("stream", "state", "drafts"),
    oracle="K=0 of the same runtime; one prefill over the emitted tokens",
    witness="accepts, and stops inside a block",
    since="0.1.0",
    cells=spread(depths=(4,)),
)
def test_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever a stop falls in an accepted block, nothing after it is emitted or cached."""
    oracles.need(Capability.STREAM, Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell)
    k = cell.k or 0
    with oracles.bits_against_steps(group, k):
        stream = group.stream(2 * k + 4)
        for index in range(2 * k + 3):
            for length in (1, 2):
                stop = stream[max(0, index + 1 - length) : index + 1]
                due = stream[: _first_end(stream, stop)]
                session = group.open(options)
                made = session.generate(
                    group.prompt,
                    num_draft_tokens=k,
                    max_tokens=2 * k + 4,
                    eos_token_ids=stop if length == 1 else (),
                    stop_sequences=[stop] if length == 2 else (),
                    guess=stream,
                )
                compared = require_tokens(made.tokens, due, what=f"K=0 up to the stop {stop}")
                compared += require_equal(
                    view(session.state()),
                    view(group.direct_state(len(due) - 1)),
                    what=f"one prefill over {len(due)} emitted tokens but the last",
                )
                witness.add(compared=compared, inside=int(0 < len(due) - 1 < k), **made.engagement)
    witness.require(accepted=k, inside=1)


def _first_end(stream: list[int], stop: list[int]) -> int:
    """Number of tokens up to and with the first occurrence of `stop`."""
    ends = range(len(stop), len(stream) + 1)
    return next(end for end in ends if stream[end - len(stop) : end] == stop)
