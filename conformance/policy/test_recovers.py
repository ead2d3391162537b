"""Text that is predicted after text that was not."""

from collections.abc import Sequence

from conformance.policy.worlds import WORLDS, asked
from mtp_conformance import Cell, Oracles, Witness, case

K, BAD, GOOD = 3, 64, 192


def _cells(profile: str) -> Sequence[Cell]:
    del profile
    return [
        Cell("attn", None, K, None, "float32", 3, (("policy", policy),))
        for policy in ("rate", "streak")
    ]


@case(
    "policy.accepts.recovers",
    clause="policy",
    level="should",
    needs=("policy",),
    oracle="none: drafts that all stand are worth making",
    witness="a pause while nothing stood",
    faults=("C7",),
    since="0.1.0",
    cells=_cells,
)
def test_recovers(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A policy that stopped drafting where nothing stood drafts again where everything does."""
    session, world = asked(oracles, cell), WORLDS["memory-bound"]
    trials = world.trials([0] * BAD + [K] * GOOD, K)
    [chosen] = session.depths([trials], num_draft_tokens=K)
    late = chosen[-GOOD // 2 :]
    witness.add(compared=1, drafted=sum(chosen), plain=chosen[:BAD].count(0))
    assert late.count(K) > len(late) * 3 // 4, (
        f"after {BAD} rounds in which no draft stood, only {late.count(K)} of {len(late)} rounds "
        f"draft {K} though all stand"
    )
    witness.require(drafted=1, plain=1)


@case(
    "policy.accepts.another-request",
    clause="policy",
    level="should",
    needs=("policy",),
    oracle="the first round of a first request",
    witness="a pause in the request before",
    faults=("C7",),
    since="0.1.0",
    cells=_cells,
)
def test_another_request(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A request drafts from its first round, though nothing stood in the one before."""
    session, world = asked(oracles, cell), WORLDS["memory-bound"]
    requests = [world.trials([0] * BAD, K), world.trials([K] * 16, K)]
    before, after = session.depths(requests, num_draft_tokens=K)
    witness.add(compared=1, drafted=sum(after), plain=before.count(0))
    assert after[0] > 0, "the first round does not draft"
    assert after.count(0) <= 1, (
        f"{after.count(0)} of the first {len(after)} rounds do not draft though all drafts stand"
    )
    witness.require(drafted=1, plain=1)
