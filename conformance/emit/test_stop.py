"""End of text and stop sequences end decoding at every index of a block."""

from collections.abc import Iterator, Sequence

from mtp_conformance import (
    Capability,
    Cell,
    Generated,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import MODELS, spread
from mtp_conformance.group import Group
from mtp_conformance.protocol import Options

SELDOM = ("gdn-moe", "gdn-mtp2", "ple", "gdn-moe+mlx-lm", "gdn-next+mlx-lm")
"""Models whose caches are, kind by kind, those of the others."""
LONGER = 3
"""Tokens of a stop that reaches two tokens back into the block before."""
_SEQUENCES = spread(models=("attn", *MODELS[1:3], "flash-next"), depths=(3,))


def _with_a_longer_one(profile: str) -> Sequence[Cell]:
    """The grid, and one model with stops of more tokens."""
    longer = Cell("window", "tape", 3, None, "float32", 5, (("stop", LONGER),))
    return [*_SEQUENCES(profile), *([] if profile in ("peers", "smoke") else [longer])]


@case(
    "emit.stop.every-index",
    clause="emitted-frontier",
    needs=("stream", "state", "guess"),
    oracle="one prefill over the emitted tokens",
    witness="accepts, and stops inside a block",
    since="0.1.0",
    cells=spread(depths=(4,), not_by_default=SELDOM),
)
def test_stop(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever a stop falls in an accepted block, nothing after it is cached."""
    oracles.need(Capability.STREAM, Capability.STATE, Capability.GUESS)
    oracles.held_after_stop(1)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell, stopped=True)
    k = cell.k or 0
    with oracles.bits_against_prefill(group, k, cell.strategy or ""):
        for due, session, made in _stops(group, options, k, witness):
            compared = require_equal(
                view(session.state()),
                view(group.direct_state(oracles.held_after_stop(len(due)))),
                what=f"one prefill over what {len(due)} emitted tokens leave in the caches",
            )
            witness.add(compared=compared, **made.engagement)
    witness.require(accepted=k, inside=1)


@case(
    "emit.stop.tokens",
    clause="emitted-tokens",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts, and stops inside a block",
    since="0.1.0",
    cells=spread(models=("attn", *MODELS[1:3], "flash-next"), depths=(3,)),
)
def test_tokens(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever an end of text falls in an accepted block, it is the last token emitted."""
    _judge_tokens(oracles, cell, witness, length=1)


@case(
    "emit.stop.sequences",
    clause="emitted-tokens",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts, and stops inside a block",
    since="0.1.0",
    cells=_with_a_longer_one,
)
def test_sequences(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever a stop of several tokens ends in a block, its end is the last token emitted."""
    _judge_tokens(oracles, cell, witness, length=int(cell.params.get("stop", 2)))


def _judge_tokens(oracles: Oracles, cell: Cell, witness: Witness, length: int) -> None:
    oracles.need(Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    k = cell.k or 0
    with oracles.bits_against_prefill(group, k, cell.strategy or ""):
        for _, _, made in _stops(group, oracles.options(cell), k, witness, (length,)):
            witness.add(**made.engagement)
    witness.require(accepted=k, inside=1)


def _stops(
    group: Group, options: Options, k: int, witness: Witness, lengths: Sequence[int] = (1, 2)
) -> Iterator[tuple[list[int], CheckedSession, Generated]]:
    """Decode to stops of these lengths at every index, holding the tokens to K=0's.

    Of one token they are ends of text, of more stop sequences; at index 0 that has one token too.
    """
    stream = group.stream(2 * k + 4)
    # Of a longer stop those that end where one block does and the next begins.
    for index in range(2 * k + 3) if max(lengths) < LONGER else range(k, k + LONGER):
        for length in lengths:
            stop = stream[max(0, index + 1 - length) : index + 1]
            due = stream[: _first_end(stream, stop)]
            session = group.open(options)
            made = session.generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=2 * k + 4,
                eos_token_ids=stop if length == 1 else (),
                stop_sequences=[stop] if length > 1 else (),
                guess=stream,
            )
            compared = require_tokens(made.tokens, due, what=f"K=0 up to the stop {stop}")
            witness.add(compared=compared, inside=int(0 < len(due) - 1 <= k))
            yield due, session, made


def _first_end(stream: list[int], stop: list[int]) -> int:
    """Number of tokens up to and with the first occurrence of `stop`."""
    ends = range(len(stop), len(stream) + 1)
    return next(end for end in ends if stream[end - len(stop) : end] == stop)
