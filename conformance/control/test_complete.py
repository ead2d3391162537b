"""Every array of every cache is shown: what is not shown cannot be compared."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case
from mtp_conformance.grid import spread
from mtp_conformance.growth import growth_faults


@case(
    "control.state.every-array",
    clause="state-shown",
    needs=("state", "drafts"),
    oracle="names and shapes that follow from the model's configuration",
    witness="arrays looked at",
    since="0.1.0",
    cells=spread(strategies=("tape",), depths=(1, 4, 8)),
)
def test_every_array(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """The state has every array the model's mechanisms have, in the canonical shapes.

    The axis K stands for rounds decoded.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    rounds = cell.k or 0
    state = group.plain_state(rounds)
    due = oracles.expected_state(group, len(group.prompt) + rounds)
    shown = {name: array.shape for name, array in state.items() if name in due}
    for name in list(due):  # pooled rows follow from raw ones, and some decoders keep none
        if name.endswith(".pooled") and name not in shown and _raw(name) in shown:
            del due[name]
    missing = sorted(set(due) - set(shown))
    assert not missing, f"state does not show {', '.join(missing)}"
    assert shown == due, "shapes: " + ", ".join(
        f"{name} is {shown[name]}, not {due[name]}" for name in due if shown[name] != due[name]
    )
    witness.add(compared=len(due))


@case(
    "control.state.grows",
    clause="state-shown",
    needs=("state", "drafts"),
    oracle="the state of the same K=0 run one token earlier",
    witness="arrays looked at",
    since="0.1.0",
    cells=spread(strategies=("tape",), depths=(1, 6)),
)
def test_grows(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """With every token rows are added behind the others and windows move up by one.

    So a state that is shown is the live one and in temporal order. The axis K stands for rounds
    decoded.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    rounds = cell.k or 0
    before, after = group.plain_state(rounds - 1), group.plain_state(rounds)
    faults = growth_faults(before, after, len(group.prompt) + rounds)
    assert not faults, "; ".join(faults)
    witness.add(compared=len(after))


def _raw(pooled: str) -> str:
    return f"{pooled.removesuffix('pooled')}index_keys"
