"""Targets: bounds on ratios."""

from dataclasses import replace

import pytest

from mtp_decoder.bench.plan import Arm
from mtp_decoder.bench.rows import Run
from mtp_decoder.bench.summary import cells_of
from mtp_decoder.bench.targets import WIDE, Target, targets_of
from tests.decoder.bench.made import STOCK, rows_of, run


def _named(what: str, *runs: Run) -> list[Target]:
    found = targets_of(cells_of(rows_of(runs)))
    return [target for target in found if what in target.what]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([1.0, 1.0], "met"),
        ([1.05, 1.05], "missed"),
        ([1.0, 1.05], "too close to call"),
        ([1.0, 2.0], "withheld"),
    ],
)
def test_plain_speed(ours: list[float], verdict: str) -> None:
    """K=0 is held to 98 % of mlx-lm's speed, unless the runs do not tell."""
    runs = [run(turn=turn, seconds=s) for turn, s in enumerate(ours)]
    (target,) = _named("K=0", run(STOCK), run(STOCK, 1), *runs)
    assert target.verdict == verdict


@pytest.mark.parametrize(("rewind", "verdict"), [(0.014, "met"), (0.016, "missed")])
def test_rewind(rewind: float, verdict: str) -> None:
    """A tape's rewinds are held to 3 % of the verify time; the others stand beside it."""
    seconds = {"prefill": 1.0, "draft": 0.1, "verify": 0.5, "accept": 0.1, "rewind": rewind}
    runs = [
        replace(run(Arm(k=3, strategy=strategy), turn, model=WIDE), seconds=seconds)
        for strategy in ("tape", "replay")
        for turn in (0, 1)
    ]
    tape, replay = _named("rewind by", *runs)
    assert (tape.verdict, replay.verdict) == (verdict, "")


def test_passes() -> None:
    """How much of a round its passes take stands beside, at real widths, with no bound."""
    runs = [run(Arm(k=3), turn, model=WIDE, seconds=0.75) for turn in (0, 1)]
    (target,) = _named("passes", *runs)
    assert target.figure.median == pytest.approx(0.6 / 0.75)
    assert target.verdict == ""


@pytest.mark.parametrize(("snapshot", "verdict"), [(30_000, "met"), (29_000, "missed")])
def test_bytes(snapshot: int, verdict: str) -> None:
    """Snapshots are held to a hundred tapes."""
    runs = [
        run(Arm(k=3, strategy=name), turn, model=WIDE, bytes={"remembered": size})
        for name, size in (("tape", 300), ("snapshot", snapshot))
        for turn in (0, 1)
    ]
    (target,) = _named("bytes of", *runs)
    assert target.verdict == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.62, "met"), (0.70, "missed")])
def test_reach(seconds: float, verdict: str) -> None:
    """The speed-up at K=3 on code is held to 90 % of its limit."""
    arm = Arm(k=3)
    runs = [run(), run(turn=1), run(arm, 0, seconds), run(arm, 1, seconds)]
    first, other = _named("", *runs)
    assert (first.verdict, other.verdict) == (verdict, "")
