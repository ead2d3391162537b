"""Summary: medians, spread, and what is withheld."""

from typing import Any

import pytest

from mtp_decoder.bench.plan import Arm
from mtp_decoder.bench.rows import Failure, Run
from mtp_decoder.bench.summary import (
    Cell,
    acceptance,
    cells_of,
    figure,
    limit,
    plain_of,
    reach,
    rewind_share,
    speed,
    speed_up,
)
from tests.decoder.bench.made import DEEP, rows_of, run


def test_median_and_spread() -> None:
    """A figure is the median; its spread is the middle half's width as a share of it."""
    made = figure([1.0, 5.0, 1.02, 0.98, 1.0])
    assert (made.median, made.withheld) == (1.0, "")
    assert made.spread == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("values", "reason"),
    [([1.0, 1.3], "spreads over 13%"), ([1.0], "1 runs are too few"), ([], "0 runs are too few")],
)
def test_withheld(values: list[float], reason: str) -> None:
    """A figure of too few runs, or of runs that lie far apart, is withheld with the reason."""
    assert reason in figure(values).withheld


def test_outliers_are_shown_and_do_not_hide_the_rest() -> None:
    """One slow run in eight widens the range and withholds nothing."""
    assert figure([1.0] * 7 + [3.0]).withheld == ""


def _why(*runs: Run) -> str:
    (cell,) = cells_of(rows_of(runs))
    return cell.withheld


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"drafted_by_depth": [], "accepted_by_depth": []}, "never drafted"),
        ({"drafted_by_depth": [50], "accepted_by_depth": [3]}, "drafted 1 deep"),
        ({"accepted_by_depth": [50, 50]}, "no draft was ever rejected"),
        ({}, ""),
    ],
)
def test_engaged(fields: dict[str, Any], reason: str) -> None:
    """An arm with drafts that never drafted, or never had to undo one, shows nothing."""
    assert _why(run(DEEP, 0), run(DEEP, 1, **fields)) == reason


def test_engaged_without_drafts() -> None:
    """An arm without drafts that drafts all the same shows nothing."""
    drafting: dict[str, Any] = {"drafted_by_depth": [3], "accepted_by_depth": [1]}
    assert _why(run(), run(turn=1, **drafting)) == "drafted without being asked to"


@pytest.mark.parametrize(("reads", "reason"), [(0, "read no expert from disk"), (4, "")])
def test_engaged_experts(reads: int, reason: str) -> None:
    """Experts on disk that are never read are not on disk."""
    arm = Arm(k=2, experts="disk")
    assert _why(*(run(arm, turn, experts_read={"reads": reads}) for turn in (0, 1))) == reason


def test_a_failure_withholds_its_cell_alone() -> None:
    """A process that failed withholds its arm's cell, with its message."""
    failure = Failure("b", "m", 1, "mtp-decoder", 2, "tape", "memory", "out of memory")
    runs = [run(), run(turn=1), run(DEEP), run(DEEP, 1)]
    plain, deep = cells_of(rows_of(runs, failures=[failure]))
    assert (plain.withheld, deep.withheld) == ("", "a process failed: out of memory")


def test_an_arm_that_only_failed_is_a_cell() -> None:
    """It does not vanish."""
    failure = Failure("b", "m", 0, "mtp-decoder", 2, "tape", "memory", "no")
    _, deep = cells_of(rows_of([run(), run(turn=1)], failures=[failure, failure]))
    assert (deep.arm, deep.withheld) == (DEEP, "a process failed: no")


def test_warm_ups_do_not_count() -> None:
    """The rows of a warm-up are kept, and in no cell."""
    runs = [run(turn=-1, warm_up=True, seconds=50), run(seconds=1), run(turn=1, seconds=1)]
    (cell,) = cells_of(rows_of(runs))
    assert speed(cell).values == (100, 100)


def _two(plain: list[float], deep: list[float]) -> tuple[Cell, Cell]:
    runs = [run(turn=turn, seconds=s) for turn, s in enumerate(plain)]
    runs += [run(DEEP, turn, s) for turn, s in reversed(list(enumerate(deep)))]
    cells = cells_of(rows_of(runs))
    found = plain_of(cells[1], cells)
    assert found is cells[0]
    return cells[1], cells[0]


def test_ratios_are_of_one_turn() -> None:
    """A computer that became half as fast changes speeds, and no ratio."""
    deep, plain = _two([2.0, 4.0], [1.0, 2.0])
    assert speed(deep).withheld
    assert speed_up(deep, plain).values == (2.0, 2.0)


def test_the_limit_of_a_cell() -> None:
    """2 tokens a round at 12 ms of passes, beside steps of 10 ms: 1.67 times as fast at most."""
    deep, plain = _two([1.0, 1.0], [0.65, 0.65])
    assert limit(deep, plain).median == pytest.approx(2 * 0.010 / 0.012)
    assert reach(deep, plain).median == pytest.approx((1 / 0.65) / (2 * 0.010 / 0.012))


def test_other_figures() -> None:
    """Rewinds beside verify passes, and the share of rounds that accepted so many drafts."""
    deep, _ = _two([1.0, 1.0], [1.0, 1.0])
    assert rewind_share(deep).median == pytest.approx(0.06)
    assert acceptance(deep) == [0.8, 0.2]
