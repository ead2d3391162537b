"""Saved sessions."""

from pathlib import Path

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_equal,
)
from mtp_conformance.grid import LIFECYCLE_MODELS, spread
from mtp_conformance.recording import alone, play, require_recorded

BEFORE = ((3, 1), (2, 0))
AFTER = ((2, 2), (0, 0), (3, 1))
"""Rounds as (K, accepted)."""


@case(
    "lifecycle.save.goes-on",
    clause="save-restore",
    needs=("save", "state", "drafts"),
    oracle="a session of its own that makes the same rounds and never stops",
    witness="accepts and rejects",
    faults=("H14",),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS),
)
def test_goes_on(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """Restored in a fresh session, or in one that decoded something else, it goes on to the bit.

    Tokens, logits and every array, the hidden that waits for the next draft included.
    """
    oracles.need(Capability.SAVE, Capability.STATE, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    oracles.need_depth(3)
    file, begun = tmp_path / "session", len(BEFORE)
    rounds = alone(group, options, (*BEFORE, *AFTER))
    original = group.open(options)
    original.prefill(group.prompt)
    play(original, rounds[:begun])
    original.save(file)
    fresh, used = (group.open(options) for _ in range(2))
    used.prefill([*group.prompt, *group.prompt][::-1])
    used.round(())
    for session in (fresh, used):
        session.restore(file)
        what = "the state when it was saved"
        witness.add(compared=require_equal(session.state(), rounds[begun - 1].state, what=what))
        what = "a session that never stopped"
        require_recorded(session, rounds[begun:], witness, what=what, first=begun + 1)
    witness.require(accepted=1, rejected=1)


@case(
    "lifecycle.published.saved-file",
    clause="published-state",
    needs=("save", "state", "drafts"),
    oracle="the state at the moment of saving",
    witness="accepts and rejects after it was saved",
    faults=("L10", "L12"),
    since="0.1.0",
    cells=spread(models=LIFECYCLE_MODELS[1:4:2]),
)
def test_saved_file(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """A file holds the tokens emitted when it was written, and nothing that comes later moves it.

    Two files of one run, each restored twice, with the saver and a restored one going on between.
    """
    oracles.need(Capability.SAVE, Capability.STATE, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    oracles.need_depth(3)
    rounds = alone(group, options, (*BEFORE, *AFTER))
    saver, files = group.open(options), [tmp_path / str(n) for n in range(len(rounds))]
    saver.prefill(group.prompt)
    for recorded, file in zip(rounds, files, strict=True):
        saver.round(recorded.drafts)
        saver.save(file)
        k, accepted = len(recorded.drafts), recorded.outcome.accepted
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted)
    contents = [file.read_bytes() for file in files]
    for number in (1, 2, 1):
        session = group.open(options)
        session.restore(files[number])
        what = f"the state after round {number + 1}, when it was saved"
        compared = require_equal(session.state(), rounds[number].state, what=what)
        witness.add(compared=compared)
        session.round(())
    assert [file.read_bytes() for file in files] == contents, "a saved file has changed"
    witness.require(accepted=1, rejected=1)
