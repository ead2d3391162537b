"""The suite's cases as functions, and what one of them says about a decoder."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path

from mtp_conformance import Oracles, Verdict, Witness
from mtp_conformance.case import Registration, registration_of
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.verdict import Inconclusive, NearTie, Unsupported
from tests.faults.fault import Shot

ROOT = Path(__file__).resolve().parents[2]
CaseFunction = Callable[..., None]
"""Of oracles, a cell and a witness, and of fixtures that some cases ask for by name."""
PROFILE = "gate"


@dataclass(frozen=True)
class KnownCase:
    """A case: what is declared of it, and its function."""

    registration: Registration
    function: CaseFunction


@dataclass(frozen=True)
class Judgement:
    """What a case says on a cell.

    Attributes:
        shot: case and cell.
        verdict: as in a run.
        seconds: how long it took.
        message: of whatever it raised.
        layer: of the first difference, for a state that differs; else empty.
        component: likewise.
    """

    shot: Shot
    verdict: Verdict
    seconds: float
    message: str = ""
    layer: str = ""
    component: str = ""

    @property
    def kills(self) -> bool:
        """Whether a run with this verdict fails."""
        return self.verdict in (Verdict.FAIL, Verdict.ERROR)


@cache
def known_cases() -> dict[str, KnownCase]:
    """Every case under `conformance/`, by id."""
    found: dict[str, KnownCase] = {}
    for file in sorted((ROOT / "conformance").rglob("test_*.py")):
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for value in vars(module).values():
            registration = registration_of(value)
            if registration is not None:
                found[registration.case.id] = KnownCase(registration, value)
    return found


def judge(shot: Shot, oracles: Oracles) -> Judgement:
    """Run a case on a cell; whatever it raises becomes a verdict, as the plugin makes it one."""
    witness, start = Witness(), time.monotonic()
    function = known_cases()[shot.case].function
    try:
        with tempfile.TemporaryDirectory(prefix="mtp-case-") as folder:
            given = {"tmp_path": Path(folder), "profile": PROFILE}
            named = {n: v for n, v in given.items() if n in signature(function).parameters}
            function(oracles, shot.cell, witness, **named)
    except Exception as error:  # a faulty decoder may raise anything
        seconds = time.monotonic() - start
        place = (error.layer, error.component) if isinstance(error, StateDiffers) else ("", "")
        return Judgement(shot, _verdict(error), seconds, f"{error}", *place)
    compared = witness.as_dict()["compared"] > 0
    verdict = Verdict.PASS if compared else Verdict.INCONCLUSIVE
    return Judgement(shot, verdict, time.monotonic() - start)


def _verdict(error: Exception) -> Verdict:
    if isinstance(error, Unsupported):
        return Verdict.UNSUPPORTED
    if isinstance(error, Inconclusive):
        return Verdict.INCONCLUSIVE
    if isinstance(error, NearTie):
        return Verdict.NEAR_TIE
    return Verdict.FAIL if isinstance(error, AssertionError) else Verdict.ERROR
