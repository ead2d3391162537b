"""What a policy decides, over K, drafts that stand and costs."""

from collections.abc import Sequence

from conformance.policy.worlds import WORLDS, asked
from mtp_conformance import Cell, Oracles, Witness, case

ROUNDS, SETTLED = 160, 64
DEPTHS = (1, 2, 3, 4, 6)
GOOD_ENOUGH = 0.85
"""Least part of the best fixed depth's rate; what is missing went into trying others."""


def _cells(profile: str) -> Sequence[Cell]:
    worlds = list(WORLDS)[:1] if profile == "smoke" else WORLDS
    return [
        Cell("attn", None, None, None, "float32", 3, (("policy", "rate"), ("world", world)))
        for world in worlds
    ]


@case(
    "policy.depth.table",
    clause="policy",
    level="should",
    needs=("policy",),
    oracle="the rates of all fixed depths under the same costs",
    witness="rounds with drafts and without",
    faults=("C8", "C9"),
    since="0.1.0",
    cells=_cells,
)
def test_table(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Once settled a policy loses little to the best depth, whatever is dear and how many stand."""
    session, world = asked(oracles, cell), WORLDS[str(cell.params["world"])]
    for most in DEPTHS:
        for pattern in [*([stand] for stand in range(most + 1)), [most, 0]]:
            stands = (pattern * ROUNDS)[:ROUNDS]
            [chosen] = session.depths([world.trials(stands, most)], num_draft_tokens=most)
            late, due = chosen[SETTLED:], stands[SETTLED:]
            rates = [world.rate([k] * len(due), due) for k in range(most + 1)]
            reached, best = world.rate(late, due) / max(rates), rates.index(max(rates))
            assert reached >= GOOD_ENOUGH, (
                f"with K={most}, of which {' and '.join(map(str, pattern))} stand in turn, depth "
                f"{best} is best; {_most(late)} gives {reached:.0%} of its tokens a second"
            )
            witness.add(compared=1, drafted=sum(late), plain=late.count(0))
    witness.require(drafted=1, plain=1)


def _most(chosen: Sequence[int]) -> str:
    depths = sorted(set(chosen), key=chosen.count, reverse=True)
    return ", ".join(f"{k} in {chosen.count(k)} rounds" for k in depths[:3])
