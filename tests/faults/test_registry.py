"""Every public fault is seeded, or listed with the reason why not."""

from pathlib import Path

import pytest

from tests.faults.cases import known_cases
from tests.faults.fault import Family, Fault
from tests.faults.registry import not_seeded, public_ids, seeded, smoke


def test_every_public_fault_is_in_one_of_the_two() -> None:
    """No public fault is forgotten, and none is both seeded and excused."""
    stood_for = {id for fault in seeded().values() for id in fault.ids}
    absent = set(not_seeded())
    assert stood_for & absent == set()
    assert stood_for | absent == set(public_ids())


def test_every_family_is_used() -> None:
    """Each of the mutant families has a fault."""
    assert {fault.family for fault in seeded().values()} == set(Family)


@pytest.mark.parametrize("fault", seeded().values(), ids=lambda fault: fault.id)
def test_a_fault_refers_to_what_exists(fault: Fault) -> None:
    """Its cells are of known cases, and it has the kind of the public faults it stands for."""
    cases = {shot.case for shot in (*fault.before, *fault.shots)}
    assert cases <= set(known_cases())
    assert not fault.ids or fault.kind in {id[0] for id in fault.ids}


def test_smoke_has_every_kind() -> None:
    """The smoke subset has one fault of each kind that is seeded at all."""
    kinds = {fault.kind for fault in seeded().values()}
    assert sorted(fault.kind for fault in smoke().values()) == sorted(kinds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[absent]]\nids = ["R1"]\n', "need a `reason` or a `later`"),
        ('[[absent]]\nids = ["R1"]\nreason = "a"\nlater = "b"\n', "need a `reason` or a `later`"),
        ('[[absent]]\nids = ["R1", "R1"]\nreason = "a"\n', "R1 is there twice"),
    ],
)
def test_a_list_that_excuses_nothing(text: str, said: str, tmp_path: Path) -> None:
    """An entry says why, once a fault."""
    file = tmp_path / "absent.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        not_seeded(file)
