"""What norm weights are stored about, by two signs."""

import mlx.core as mx
import pytest

from mtp_decoder import CheckpointError
from mtp_decoder.qwen.norms import Norms, by_values, centre, resolve

ZERO, ONE = Norms.ABOUT_ZERO, Norms.ABOUT_ONE
BY_ZERO, BY_ONE = (ZERO, "it looks so"), (ONE, "it looks so")


@pytest.mark.parametrize(
    ("median", "seen"),
    [(-2.0, ZERO), (0.0, ZERO), (0.35, ZERO), (0.36, None), (0.64, None), (0.65, ONE), (3.0, ONE)],
)
def test_by_values(median: float, seen: Norms | None) -> None:
    """A median near a half is no sign, any other is."""
    assert by_values(median) is seen


def test_centre() -> None:
    """The median is over all values, so that one odd norm does not count for many."""
    arrays = [mx.full((9,), 0.25, mx.bfloat16), mx.full((4,), 90.0), mx.zeros((1,))]
    assert centre(arrays) == 0.25
    assert centre([]) is None


@pytest.mark.parametrize(
    ("layout", "median", "given", "words"),
    [
        (BY_ZERO, 0.1, None, "about zero"),
        (BY_ONE, 1.1, None, "about one"),
        (BY_ONE, 0.5, None, "about one (by the layout alone: their median is 0.5)"),
        (BY_ZERO, None, None, "about zero (by the layout alone: their median is None)"),
        (None, 0.9, None, "about one (by their values alone)"),
        (BY_ZERO, 1.0, ONE, "about one (as given)"),
        (None, 0.5, ZERO, "about zero (as given)"),
    ],
)
def test_resolved(
    layout: tuple[Norms, str] | None, median: float | None, given: Norms | None, words: str
) -> None:
    """Signs that agree need no word; anything less is said."""
    assert resolve("norms", layout, median, given).words == words


@pytest.mark.parametrize(("layout", "median"), [(BY_ZERO, 1.0), (BY_ONE, 0.0)])
def test_contradicting(layout: tuple[Norms, str], median: float) -> None:
    """Signs that contradict are refused, with both and with the option that settles it."""
    said = rf"it looks so, .* their median is {median:.2f}.*--head-norms about-zero or"
    with pytest.raises(CheckpointError, match=said):
        resolve("head-norms", layout, median, None)


@pytest.mark.parametrize("median", [None, 0.5])
def test_without_a_sign(median: float | None) -> None:
    """Without any sign it is asked for."""
    with pytest.raises(CheckpointError, match=r"cannot be told.* say so with --norms about-zero"):
        resolve("norms", None, median, None)
