"""As many drafts a round as the decoder takes."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, run_rounds
from mtp_conformance.grid import spread

MOST = 24
"""Beyond twice the window, the pool ratio and the depths of other cases; deeper is only slower."""


@case(
    "rewind.depth.deepest",
    clause="transition-closure",
    needs=("state", "drafts"),
    oracle="rounds that were given the accepted drafts alone",
    witness="accepts and rejects",
    faults=("R15", "X10"),
    since="0.1.0",
    cells=spread(models=("window", "qsa", "gdn+mlx-lm"), strategies=("tape", "rerun")),
)
def test_deepest(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """At the deepest K nothing is lost for lack of room: rejected drafts leave no trace."""
    oracles.need(Capability.STATE, Capability.DRAFTS)
    most = min(oracles.description.max_draft_tokens, MOST)
    run_rounds(oracles, cell, [(most, most // 2)], witness)
    witness.require(accepted=1, rejected=1)
