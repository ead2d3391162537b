"""Running the checks of a gate, one cell after the other, into a report.

Results are written as they come, so that a gate that is interrupted leaves what it knew, marked
partial. What a cell held is dropped before the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from mtp_conformance.case import Cell, Witness
from mtp_conformance.details import detailed
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.gate.checks import CONTROL, PROBE, Check, Plan
from mtp_conformance.oracles import NotDeterministic
from mtp_conformance.report import Failure, ReportWriter, Result
from mtp_conformance.verdict import Inconclusive, NearTie, Unsupported, Verdict

Progress = Callable[[str], None]
Command = Callable[[Cell], str]
"""From a cell to what runs it again."""


@dataclass(frozen=True)
class Memory:
    """Bytes of mlx arrays in this process.

    Attributes:
        loaded: once the checkpoint was loaded.
        peak: most at any time after that.
        state: of one session's caches.
    """

    loaded: int
    peak: int
    state: int

    def as_dict(self) -> dict[str, int]:
        """By name, for the report."""
        return {"loaded": self.loaded, "peak": self.peak, "state": self.state}


def run_checks(
    plan: Plan,
    checks: Sequence[Check],
    writer: ReportWriter,
    command: Command,
    progress: Progress,
) -> Iterator[Result]:
    """Run every cell of every check and write its result; after a failing control nothing more."""
    cells = _in_order(plan, checks)
    control_held = True
    for number, (check, cell) in enumerate(cells, start=1):
        if check.case.id != CONTROL.case.id and not control_held:
            return
        progress(f"[{number}/{len(cells)}] {_spoken(check, cell)}")
        result = judge(plan, check, cell, command)
        plan.oracles.tidy()
        writer.result(result)
        control_held = control_held and (
            check.case.id != CONTROL.case.id or result.verdict is Verdict.PASS
        )
        yield result


def _in_order(plan: Plan, checks: Sequence[Check]) -> list[tuple[Check, Cell]]:
    """Every cell; after control and probe by prompt, so that a prompt's prefill is shared."""
    first = (CONTROL.case.id, PROBE.case.id)
    at = {prompt.name: place for place, prompt in enumerate(plan.prompts)}
    cells = [(check, cell) for check in checks for cell in check.cells(plan)]
    early = [pair for pair in cells if pair[0].case.id in first]
    late = [pair for pair in cells if pair[0].case.id not in first]
    return [*early, *sorted(late, key=lambda pair: at[str(pair[1].params["prompt"])])]


def judge(plan: Plan, check: Check, cell: Cell, command: Command) -> Result:
    """Hold one cell to a claim."""
    witness, start = Witness(), time.perf_counter()
    verdict, reason, error = Verdict.PASS, None, None
    try:
        check.run(plan, cell, witness)
    except Unsupported as gap:
        verdict, reason = Verdict.UNSUPPORTED, gap.reason
    except (Inconclusive, NotDeterministic) as doubt:
        verdict, reason, error = Verdict.INCONCLUSIVE, str(doubt), doubt
    except NearTie as tie:
        verdict, reason, error = Verdict.NEAR_TIE, tie.reason, tie
    except AssertionError as difference:
        verdict, error = Verdict.FAIL, difference
    except Exception as broken:  # a runtime that failed, and whatever else ends a cell
        verdict, error = Verdict.ERROR, broken
    failure = None
    if error is not None:
        failure = Failure(message=reason or _message(error), command=command(cell))
        failure = detailed(failure, error, plan.oracles, cell)
    seconds = time.perf_counter() - start
    return Result(check.case.id, cell.params, verdict, seconds, witness.as_dict(), failure, reason)


def measured(loaded: int, state: int) -> Memory:
    """What was needed since the checkpoint was loaded."""
    return Memory(loaded, mx.get_peak_memory(), state)


def _message(error: BaseException) -> str:
    if isinstance(error, StateDiffers):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _spoken(check: Check, cell: Cell) -> str:
    axes = {"K": cell.k, "accepted": cell.accepted, "prompt": cell.params["prompt"]}
    told = ", ".join(f"{name} {value}" for name, value in axes.items() if value is not None)
    return f"{check.case.id.removesuffix('.checkpoint')}: {told}"
