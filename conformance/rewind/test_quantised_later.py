"""Keys and values that become quantised in the middle of a stream."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.grid import QUICK, spread
from mtp_conformance.group import State

AHEAD = (6, 3, 4, 5, 7, 8)
"""Tokens after the prompt at which it happens; the first of them for a person who waits."""
BEYOND = 4
"""How many tokens after it are looked at."""
_grid = spread(
    models=("gdn-wide", "gdn-wide+mlx-lm"), depths=(4,), not_by_default=("gdn-wide+mlx-lm",)
)


def _cells(profile: str) -> Sequence[Cell]:
    """The grid, with where the caches become quantised; rows of the models divide by 32."""
    packed = (("kv_bits", 8), ("kv_group_size", 32))
    return [
        replace(cell, extra=(*packed, ("quantized_kv_start", (cell.prompt_length or 0) + ahead)))
        for cell in _grid(profile)
        for ahead in (AHEAD[:1] if profile in QUICK else AHEAD)
    ]


@case(
    "rewind.quantised.in-mid-stream",
    clause="quantised-caches",
    needs=("kv-bits", "stream", "guess", "state"),
    oracle="K=0 of the same runtime with the same start",
    witness="plain rows before, packed rows after, accepts and rejects",
    since="0.1.0",
    cells=_cells,
)
def test_in_mid_stream(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Rows become packed at the token at which they do without drafts, whatever is rejected there.

    A run for every end around that token, each with other drafts wrong.
    """
    oracles.need(Capability.KV_BITS, Capability.STREAM, Capability.GUESS, Capability.STATE)
    oracles.held_after_stop(1)
    group, k = oracles.group(cell), cell.k or 0
    options, view = oracles.prefill_like(cell, stopped=True)
    rounds = int(cell.params["quantized_kv_start"]) - len(group.prompt)
    stream = group.stream(rounds + BEYOND)
    before, after = (_packed(group.plain_state(done)) for done in (0, rounds + 1))
    witness.add(plain=int(not before), packed=int(after))
    with oracles.bits_against_steps(group, k):
        for emitted in range(rounds, rounds + BEYOND):
            guess = [(t + 1) % 256 if i % 3 == emitted % 3 else t for i, t in enumerate(stream)]
            session = group.open(options)
            made = session.generate(
                group.prompt, num_draft_tokens=k, max_tokens=emitted, guess=guess
            )
            compared = require_tokens(made.tokens, stream[:emitted], what="K=0 with the same start")
            held = oracles.held_after_stop(emitted)
            due = view(group.plain_state(held))
            what = f"K=0 with the same start, after {held} rounds (packed from round {rounds + 1})"
            compared += require_equal(view(session.state()), due, what=what)
            witness.add(compared=compared, **made.engagement)
    witness.require(plain=1, packed=1, accepted=1, rejected=1)


def _packed(state: State) -> bool:
    return any(name.endswith(".keys_scales") for name in state)
