"""Edits are made to the functions themselves, and only to the text they expect."""

import pytest

from mtp_decoder.rewind.kv import cut_rows
from tests.faults.editing import EditError, edit
from tests.faults.fault import Claim, Family, Fault, one_round


def doubled(x: int) -> int:
    """A function to be edited."""
    return x * 2


alias = doubled


def test_an_edit_reaches_every_reference_and_is_undone() -> None:
    """Whoever holds the function runs the edited one, until the patch ends."""
    with pytest.MonkeyPatch.context() as patch:
        edit(patch, doubled, ("x * 2", "x * 3"))
        assert alias(2) == 6
    assert alias(2) == 4


@pytest.mark.parametrize("old", ["no such text", "cache"])
def test_text_that_is_not_there_once(old: str) -> None:
    """An edit whose text is missing or there twice is refused: the decoder has changed."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(EditError, match="cut_rows has"):
        edit(patch, cut_rows, (old, ""))


def test_a_closure() -> None:
    """A function with a closure is refused."""
    outer = 1

    def inner() -> int:
        return outer

    with pytest.MonkeyPatch.context() as patch, pytest.raises(EditError, match="a closure"):
        edit(patch, inner, ("outer", "2 * outer"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shots": ()}, "name a cell that kills it"),
        ({"invariant": "I99"}, "no invariant I99"),
        ({"claim": Claim.STATE}, "say which layer and component"),
    ],
)
def test_a_fault_that_says_too_little(changes: dict[str, object], said: str) -> None:
    """A fault names what kills it, what it breaks and where."""
    whole: dict[str, object] = {
        "id": "x",
        "family": Family.CAP,
        "kind": "R",
        "ids": (),
        "invariant": "I1",
        "claim": Claim.ANY,
        "shots": (one_round("attn"),),
        "apply": lambda patch: None,
    }
    with pytest.raises(ValueError, match=said):
        Fault(**(whole | changes))  # pyright: ignore[reportArgumentType]  (types vary by case)
