"""The kill matrix: every fault in worker processes, and what came of it."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import cast

from mtp_conformance import Verdict
from tests.faults.cases import Judgement, known_cases
from tests.faults.fault import Claim, Fault, Shot
from tests.faults.running import Job, serve

SECONDS = 180.0
"""Longest a worker may be silent; a fault that makes it hang is killed by that."""
_CONTROL_CHUNK = 12


@dataclass
class Examined:
    """A fault and all that was said of it, in order."""

    fault: Fault
    judgements: list[Judgement] = field(default_factory=list[Judgement])

    @property
    def kills(self) -> list[Judgement]:
        """Judgements that would fail a run."""
        return [j for j in self.judgements if self._kills(j)]

    def _kills(self, judgement: Judgement) -> bool:
        void = self.fault.may_void and judgement.verdict is Verdict.INCONCLUSIVE
        return judgement.kills or void

    @property
    def killed(self) -> bool:
        """Whether any case noticed."""
        return bool(self.kills)

    @property
    def noticed_by_its_claim(self) -> bool:
        """Whether a case noticed that is about what the fault breaks."""
        return any(_meets(self.fault.claim, kill) for kill in self.kills)

    @property
    def weak(self) -> list[Shot]:
        """Cells that are named as killers and are none."""
        own = [j for j in self.judgements if j.shot in self.fault.shots]
        return [j.shot for j in own if not self._kills(j)]

    @property
    def seconds(self) -> float | None:
        """Time to the first kill; None for a survivor."""
        total = 0.0
        for judgement in self.judgements:
            total += judgement.seconds
            if self._kills(judgement):
                return total
        return None

    @property
    def located(self) -> list[Judgement]:
        """Kills that name a layer, of a fault that is to be found in one.

        Logits and drafts belong to no layer: they only show that something before them is wrong.
        """
        return [kill for kill in self.kills if kill.layer and self.fault.breaks]

    @property
    def placed(self) -> list[Judgement]:
        """Those that name the edited ones."""
        return [j for j in self.located if (j.layer, j.component) in self.fault.breaks]

    @property
    def clauses(self) -> list[str]:
        """Clauses of the cases that noticed, each once."""
        cases = known_cases()
        return list(dict.fromkeys(cases[k.shot.case].registration.case.clause for k in self.kills))


def _meets(claim: Claim, kill: Judgement) -> bool:
    if claim is Claim.STATE:
        return kill.verdict is Verdict.FAIL and bool(kill.layer)
    if claim is Claim.HEAD:
        of_the_head = kill.layer.startswith("head") or kill.shot.case.startswith("head.")
        return kill.verdict is Verdict.FAIL and of_the_head
    return True


@dataclass(frozen=True)
class Matrix:
    """Everything that was found.

    Attributes:
        examined: faults, in order.
        control: judgements of the unedited decoder on the faults' own cells.
        seconds: how long it took.
    """

    examined: tuple[Examined, ...]
    control: tuple[Judgement, ...]
    seconds: float

    @property
    def survivors(self) -> list[str]:
        """Faults that no case noticed."""
        return [e.fault.id for e in self.examined if not e.killed]

    @property
    def unclaimed(self) -> list[str]:
        """Faults that were noticed, by none of the cases that have to."""
        return [e.fault.id for e in self.examined if e.killed and not e.noticed_by_its_claim]

    @property
    def weak(self) -> list[str]:
        """Cells named as killers of a fault that let it pass, as `fault: cell`."""
        return [f"{e.fault.id}: {shot.id}" for e in self.examined for shot in e.weak]

    @property
    def false_alarms(self) -> list[Judgement]:
        """Cells on which the unedited decoder does not pass."""
        return [j for j in self.control if j.verdict is not Verdict.PASS]

    @property
    def located(self) -> tuple[int, int]:
        """How many kills name a layer and component, and how many the edited ones."""
        found = [(len(e.located), len(e.placed)) for e in self.examined]
        return sum(n for n, _ in found), sum(n for _, n in found)

    @property
    def holds(self) -> bool:
        """Whether every fault was noticed as it has to be, and nothing else was."""
        located, placed = self.located
        bad = self.survivors or self.unclaimed or self.weak or self.false_alarms
        return not bad and placed >= LEAST_PLACED * located


LEAST_PLACED = 0.95
"""Least part of kills with a layer and component that name the edited ones."""
Progress = Callable[[int, int, str], None]


def run(
    faults: Sequence[Fault],
    folder: Path,
    *,
    workers: int,
    first_kill: bool = False,
    progress: Progress = lambda done, total, name: None,
) -> Matrix:
    """Examine faults and, on the same cells, the unedited decoder.

    Args:
        faults: which.
        folder: for checkpoints, a folder a worker.
        workers: processes.
        first_kill: stop each fault at its first kill.
        progress: told of every finished job: how many, of how many, which.
    """
    start = time.monotonic()
    found = {fault.id: Examined(fault) for fault in faults}
    control: list[Judgement] = []
    jobs = [Job(fault.id, fault.shots, first_kill) for fault in faults]
    jobs += _control_jobs(faults, first_kill=first_kill)
    for done, (job, judgements) in enumerate(_work(jobs, folder, workers), start=1):
        (found[job.fault].judgements if job.fault else control).extend(judgements)
        progress(done, len(jobs), job.fault or "the unedited decoder")
    return Matrix(tuple(found.values()), tuple(control), time.monotonic() - start)


def _control_jobs(faults: Iterable[Fault], *, first_kill: bool) -> list[Job]:
    """Every cell that kills a fault, once, those of a model together."""
    used = {s: None for f in faults for s in (f.shots[:1] if first_kill else f.shots)}
    shots = sorted(used, key=lambda shot: (shot.cell.model or "", shot.id))
    starts = range(0, len(shots), _CONTROL_CHUNK)
    return [Job("", tuple(shots[at : at + _CONTROL_CHUNK])) for at in starts]


class _Worker:
    """A process, the job it is at, and what it said of it so far."""

    def __init__(self, context: SpawnContext, folder: Path) -> None:
        self._context, self._folder = context, folder
        self.job: Job | None = None
        self.judgements: list[Judgement] = []
        self.heard = 0.0
        self._start()

    def _start(self) -> None:
        mine, theirs = self._context.Pipe()
        self.connection = mine
        self.process: SpawnProcess = self._context.Process(
            target=serve, args=(theirs, self._folder), daemon=True
        )
        self.process.start()
        theirs.close()

    def begin(self, job: Job) -> None:
        self.job, self.judgements, self.heard = job, [], time.monotonic()
        self.connection.send(job)

    def replace(self, why: str) -> None:
        """Start another process; what was under way is an error of the decoder."""
        self.stop()
        shot = self._under_way()
        self.judgements.append(
            Judgement(shot, Verdict.ERROR, time.monotonic() - self.heard, f"the process {why}")
        )
        self._start()

    def _under_way(self) -> Shot:
        assert self.job is not None
        shots = self.job.shots
        return shots[min(len(self.judgements), len(shots) - 1)]

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.connection.close()


def _work(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[tuple[Job, list[Judgement]]]:
    """Jobs with their judgements, as they are done."""
    context = multiprocessing.get_context("spawn")
    waiting = list(reversed(jobs))
    pool = [_Worker(context, _made(folder / str(i))) for i in range(min(workers, len(jobs)))]
    try:
        for worker in pool:
            worker.begin(waiting.pop())
        while busy := [worker for worker in pool if worker.job is not None]:
            for worker in _heard(busy):
                job = worker.job
                assert job is not None
                yield job, worker.judgements
                worker.job = None
                if waiting:
                    worker.begin(waiting.pop())
    finally:
        for worker in pool:
            worker.stop()


def _heard(busy: Sequence[_Worker]) -> Iterator[_Worker]:
    """Take in what workers say; yields those whose job is over."""
    by_connection = {worker.connection: worker for worker in busy}
    ready = wait(list(by_connection), timeout=1.0)
    for connection in ready:
        worker = by_connection[cast("Connection", connection)]
        worker.heard = time.monotonic()
        try:
            said = worker.connection.recv()
        except EOFError:
            worker.replace("died")
            said = None
        if said is None:
            yield worker
        else:
            worker.judgements.append(said)
    for worker in busy:
        if worker.connection not in ready and time.monotonic() - worker.heard > SECONDS:
            worker.replace(f"said nothing for {SECONDS:.0f} s")
            yield worker


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
