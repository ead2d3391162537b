"""Keys and values in a quantised cache."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_rewound,
    run_rounds,
)
from mtp_conformance.grid import spread

BITS = (8, 4)
SCRIPT = ((3, 1), (0, 0), (2, 2), (3, 0))
"""Rounds as (K, accepted)."""
_grid = spread(models=("gdn-wide", "gdn-wide+mlx-lm"), depths=(1, 4))


def _cells(profile: str) -> Sequence[Cell]:
    """The grid, with a number of bits that varies along it; rows of the models divide by 32."""
    every = BITS if profile == "full" else (None,)
    return [
        replace(cell, extra=(("kv_bits", bits or BITS[i % 2]), ("kv_group_size", 32)))
        for i, cell in enumerate(_grid(profile))
        for bits in every
    ]


@case(
    "rewind.quantised.every-accept",
    clause="quantised-caches",
    needs=("kv-bits", "state", "drafts"),
    oracle=(
        "a round that was given the accepted drafts alone; K=0; one forward pass over all tokens"
    ),
    witness="packed rows, accepts and rejects",
    faults=("Q1", "Q2", "K6"),
    since="0.1.0",
    cells=_cells,
)
def test_every_accept(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Packed rows, scales and offsets are those of a cache that saw accepted tokens only.

    Between quantised layers each recurrent state goes back to its own. One round of every accept
    count, and rounds in a row.
    """
    oracles.need(Capability.KV_BITS, Capability.STATE, Capability.DRAFTS)
    state = oracles.group(cell).prefilled(oracles.options(cell)).state()
    plain = [n for n, a in state.items() if n.endswith(".keys") and a.dtype != mx.uint32]
    assert not plain, f"kv_bits was asked for, and plain rows are in {', '.join(plain)}"
    witness.add(packed=sum(name.endswith(".keys_scales") for name in state))
    for accepted in range((cell.k or 0) + 1):
        require_rewound(oracles, replace(cell, accepted=accepted), witness)
    run_rounds(oracles, cell, SCRIPT, witness)
    witness.require(packed=1, accepted=1, rejected=1)
