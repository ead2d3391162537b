"""At the end of a round no array of a cache waits to be computed."""

import io

import mlx.core as mx

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.grid import spread

ROUNDS, MANY, EVERY = 3, 300, 25
"""Steps without drafts; rounds where there is time, and how many of them go by between looks."""


@case(
    "memory.laziness.nothing-pending",
    clause="laziness",
    needs=("state", "drafts"),
    oracle="the same arrays once everything has been evaluated",
    witness="accepts and rejects",
    faults=("M2", "X7", "C1"),
    since="0.1.0",
    cells=spread(models=("window", "qsa", "gdn-moe+mlx-lm", "flash-next"), depths=(2,)),
)
def test_nothing_pending(oracles: Oracles, cell: Cell, witness: Witness, profile: str) -> None:
    """After a reject, a full accept and steps without drafts every cache is evaluated.

    An array that nobody reads would grow a chain of operations, round after round.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    if not oracles.runtime.in_process:
        raise Unsupported("what a process of its own has yet to compute cannot be seen from here")
    group, k = oracles.group(cell), cell.k or 0
    session, emitted = group.prefilled(oracles.options(cell)), 1
    script = [(k, 0), (k, k), *[(0, 0)] * ROUNDS]
    closely = len(script)
    if profile in ("nightly", "full"):
        script += [(k, 0), (k, k), (0, 0)] * (MANY // 3)
    for number, (drafted, accepted) in enumerate(script, start=1):
        drafts = group.drafts(emitted, drafted, accepted)
        session.round(drafts)
        emitted += accepted + 1
        witness.add(drafted=drafted, accepted=accepted, rejected=drafted - accepted)
        if number > closely and number % EVERY:
            continue
        state = session.unevaluated_state()
        before = _pending(state)
        mx.eval(state)
        after = _pending(session.unevaluated_state())
        late = [name for name in before if before[name] > after.get(name, 0)]
        assert not late, (
            f"after round {number}: {', '.join(late[:6])} not evaluated; {late[0]} waits for "
            f"{before[late[0]] - after[late[0]]} operations"
        )
        witness.add(compared=len(state))
    witness.require(accepted=1, rejected=1)


def _pending(state: dict[str, mx.array]) -> dict[str, int]:
    """Operations each array waits for: mlx draws each as a rectangle."""
    found: dict[str, int] = {}
    for name, array in state.items():
        drawing = io.StringIO()
        mx.export_to_dot(drawing, array)
        found[name] = drawing.getvalue().count("shape=rectangle")
    return found
