"""Cells: names and parameters of the axes that are set."""

import pytest

from mtp_conformance.case import Cell

FULL = Cell(model="gdn", strategy="tape", k=3, accepted=1, dtype="float32", prompt_length=7)


def test_the_id_names_every_axis_in_order() -> None:
    """An id reads model, strategy, K, accepted, dtype, prompt length."""
    assert FULL.id == "gdn-tape-k3-a1-float32-p7"


def test_axes_that_are_not_set_are_left_out() -> None:
    """Zero is a value of an axis; None is not."""
    cell = Cell(model="gdn", accepted=0, extra=(("next_accepted", 2),))
    assert cell.params == {"model": "gdn", "accepted": 0, "next_accepted": 2}
    assert cell.id == "gdn-a0-next_accepted-2"


def test_a_cell_without_axes_has_a_name() -> None:
    """A cell without axes is called ``all``."""
    assert (Cell().id, Cell().params) == ("all", {})


@pytest.mark.parametrize("extra", [(("k", 1),), (("row", 1), ("row", 2))], ids=["axis", "twice"])
def test_an_extra_axis_that_repeats_a_name_is_refused(extra: tuple[tuple[str, int], ...]) -> None:
    """Extra axes have names of their own."""
    with pytest.raises(ValueError, match="repeat a name"):
        Cell(extra=extra)
