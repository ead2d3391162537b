"""A case can ask for inputs without ties in an index."""

from pathlib import Path

from mtp_conformance import Cell, Oracles
from mtp_conformance.adapters import builtin
from mtp_conformance.oracles import TIE_FREE_GAP


def test_tie_free_group_keeps_scores_apart(tmp_path: Path) -> None:
    """A tie-free group's prompt and stream never select by a tie, and the default text does."""
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path))
    cell = Cell("qsa", dtype="bfloat16", prompt_length=8)
    checkpoint = builtin.zoo_checkpoint("qsa", "bfloat16", tmp_path)
    gaps = [
        builtin.index_gap(checkpoint, oracles.group(cell, tie_free=wanted).prompt, 16)
        for wanted in (False, True)
    ]
    assert gaps[0] == 0.0 < TIE_FREE_GAP < gaps[1]
