"""Cases go on until they saw what they are about, and no further than the draws."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.stream import test_own_drafts
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_conformance.protocol import Generated

CELL = Cell("gdn-agree", "tape", 1, None, "float32", 5)
LENGTHS = (4, 8)


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Oracles:
    """The builtin decoder, and a model to decode."""
    return Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path_factory.mktemp("models")))


def _asked(
    oracles: Oracles, fates: list[dict[str, int]], *seen: str
) -> list[tuple[list[int], int]]:
    """The prompts and lengths that are asked for where drafts have these fates, one a group."""
    witness, found = Witness(), list[tuple[list[int], int]]()
    names = seen or ("accepted", "rejected")
    for group, length in oracles.until_seen(CELL, witness, LENGTHS, names):
        witness.add(**fates[len(found)])
        found.append((group.prompt, length))
    return found


@pytest.mark.parametrize("fate", ["accepted", "rejected"])
def test_one_fate(oracles: Oracles, fate: str) -> None:
    """Where all drafts have one fate, the own prompt is decoded longer, then three others."""
    own, drawn = oracles.group(CELL).prompt, [group.prompt for group in oracles.draws(CELL)]
    due = [(own, 4), (own, 8), *((prompt, 8) for prompt in drawn)]
    assert _asked(oracles, [{fate: 1}] * 5) == due
    assert len({tuple(prompt) for prompt in (own, *drawn)}) == 4


def test_both_fates(oracles: Oracles) -> None:
    """Nothing more is asked for once there are both, be it in one prompt or in two."""
    own, first, *_ = (oracles.group(CELL), *oracles.draws(CELL))
    assert _asked(oracles, [{"accepted": 1, "rejected": 1}]) == [(own.prompt, 4)]
    fates = [{"accepted": 1}, {"accepted": 1}, {"rejected": 1}]
    assert _asked(oracles, fates) == [(own.prompt, 4), (own.prompt, 8), (first.prompt, 8)]


def test_what_a_case_counts_itself(oracles: Oracles) -> None:
    """A case may be about something else, such as drafts that nearly tie."""
    own = oracles.group(CELL).prompt
    fates = [{"accepted": 1, "rejected": 1}, {"near": 2}]
    assert _asked(oracles, fates, "accepted", "near") == [(own, 4), (own, 8)]


class AlwaysRight(builtin.BuiltinSession):
    """Says that all of its drafts stood."""

    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        """See the class."""
        made = super().generate(tokens, **arguments)
        return replace(made, accepted=made.drafted)


def test_no_reject_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that is right everywhere proves nothing still."""
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path))
    monkeypatch.setattr(builtin, "BuiltinSession", AlwaysRight)
    monkeypatch.setattr(test_own_drafts, "LENGTHS", LENGTHS)
    witness = Witness()
    with pytest.raises(Inconclusive, match=r"rejected 0 of at least 1$"):
        test_own_drafts.test_own_drafts(oracles, CELL, witness)
    assert witness.as_dict()["compared"] == 4 + 8 + 3 * 8
