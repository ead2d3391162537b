"""Rows sorted by expert."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal
from mtp_conformance.grid import PEER_DEPTH

ROWS = (31, 32)
"""Rows of a pass on both sides of the switch at 64 pairs of a row and one of its two experts."""
MODELS = ("gdn-moe", "gdn-moe+mlx-lm")


def cells(profile: str) -> Sequence[Cell]:
    """A cell a model and side of the switch; verify pass and first prompt chunk are as wide.

    By default mlx-lm's class from the switch on alone.
    """
    if profile == "peers":
        return [Cell("gdn-moe", "tape", PEER_DEPTH, None, "float32", 8)]
    found = [Cell(m, "tape", rows - 1, None, "float32", rows + 1) for m in MODELS for rows in ROWS]
    if profile == "smoke":
        return found[1:2]
    return found if profile == "full" else [cell for n, cell in enumerate(found) if n != 2]


@case(
    "experts.grouped.equals-ungrouped",
    clause="grouped-experts",
    needs=("experts", "state", "drafts", "logits"),
    oracle="the same passes with rows as they come",
    witness="rows compared, and rejects",
    faults=("N1",),
    since="0.1.0",
    cells=cells,
)
def test_equals_ungrouped(oracles: Oracles, cell: Cell, witness: Witness, profile: str) -> None:
    """Prompt and verify pass have the same bits with sorted rows, on disk and in memory."""
    oracles.need(Capability.EXPERTS, Capability.STATE, Capability.DRAFTS, Capability.LOGITS)
    group, options, k = oracles.group(cell), oracles.options(cell), cell.k or 0
    drafts, sizes = group.drafts(1, k, 0), oracles.expert_sizes(group)
    budget = {"expert_budget": 2 * sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
    ways = [{"group_experts": "off"}, {"group_experts": "on", **budget}, {"group_experts": "on"}]
    ways = ways if profile == "full" else ways[:2]
    due = None
    for way in ways:
        session = group.open(replace(options, **way))
        session.prefill(group.prompt)
        found = {f"prompt.{name}": array for name, array in session.state().items()}
        outcome = session.round(drafts)
        assert outcome.logits is not None
        found |= {"logits": outcome.logits, **session.state()}
        due = due or found
        what = f"experts as rows come, against {way}"
        with oracles.bits_against_prefill(group, 0):  # products of several rows may round otherwise
            compared = require_equal(found, due, what=what, round=1) if due is not found else 0
        rejected = k - outcome.accepted
        witness.add(drafted=k, accepted=outcome.accepted, rejected=rejected, compared=compared)
    witness.require(rejected=k, compared=1)
