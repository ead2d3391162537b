"""One-off costs of first calls."""

from collections.abc import Sequence
from dataclasses import replace

from conformance.policy.worlds import WORLDS, asked
from mtp_conformance import Cell, Oracles, Witness, case
from mtp_conformance.protocol import Trial

K, ROUNDS = 3, 48
SLOW = 50


def _cells(profile: str) -> Sequence[Cell]:
    del profile
    return [Cell("attn", None, K, None, "float32", 3, (("policy", "rate"),))]


@case(
    "policy.cost.first-calls",
    clause="policy",
    level="should",
    needs=("policy",),
    oracle="the same rounds without the one-off cost",
    witness="rounds with drafts",
    faults=("C9",),
    since="0.1.0",
    cells=_cells,
)
def test_first_calls(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """A first verify pass that compiles, and takes fifty times as long, decides nothing.

    Whichever round is the first to draft so many, it is the slow one: the rounds are played again
    with one more of them slowed until every depth was met. Plain steps are compiled already.
    """
    session, world = asked(oracles, cell), WORLDS["memory-bound"]
    trials = world.trials([K] * ROUNDS, K)
    slowed: dict[int, int] = {}
    while True:
        [chosen] = session.depths([trials], num_draft_tokens=K)
        new = [(k, chosen.index(k)) for k in set(chosen) - {0, *slowed}]
        if not new:
            break
        k, first = min(new, key=lambda found: found[1])
        slowed[k] = first
        trials[first] = _slow(trials[first])
    late = chosen[ROUNDS // 2 :]
    witness.add(compared=1, drafted=sum(chosen), slowed=len(slowed))
    witness.require(drafted=1, slowed=1)
    assert late.count(K) > len(late) * 3 // 4, (
        f"all drafts stand and cost little, but with slow first calls only {late.count(K)} of "
        f"{len(late)} rounds draft {K}"
    )


def _slow(trial: Trial) -> Trial:
    return replace(trial, verify_seconds=tuple(s * SLOW for s in trial.verify_seconds))
