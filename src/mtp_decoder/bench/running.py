"""Running a plan: one process a turn, raw rows as they come.

A run that was stopped can go on: whole passes stay, the one that was interrupted is run again, so
that its arms still come one after the other. Rows of another plan or computer are refused.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from mtp_decoder.bench.machine import load, machine
from mtp_decoder.bench.plan import MLX_LM, OURS, Block, Job, Plan, jobs_of, spec_of
from mtp_decoder.bench.rows import Failure, Header, Rows, Run, line_of, read_rows
from mtp_decoder.errors import DecoderError

ROWS = "rows.jsonl"
HANGS_AFTER = 600.0
"""Seconds after which a process is given up."""

Launch = Callable[[Plan, Job], list[dict[str, Any]]]


class LaunchError(Exception):
    """A process that gave no rows; the message is the end of what it said."""


class Watcher(Protocol):
    """Who is shown what is run."""

    def begin(self, job: Job, done: int, total: int) -> None:
        """A process is about to start."""
        ...

    def end(self, job: Job, records: Sequence[Run | Failure]) -> None:
        """It ended."""
        ...


def launch(plan: Plan, job: Job) -> list[dict[str, Any]]:
    """Run a job in a process of its own; returns what it measured, one dict a prompt.

    Raises:
        LaunchError: it failed, said something else, or hung.
    """
    command = [sys.executable, "-m", "mtp_decoder.bench.worker"]
    if job.arm.runtime not in (OURS, MLX_LM):
        command = shlex.split(plan.peers[job.arm.runtime])
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which ends it
        )
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error
    with process:
        try:
            out, said = process.communicate(json.dumps(spec_of(plan, job)), timeout=HANGS_AFTER)
        except subprocess.TimeoutExpired:
            raise LaunchError(
                f"no end after {HANGS_AFTER:.0f} s: give it fewer tokens, or a smaller model"
            ) from None
        finally:
            _end(process)
    if process.returncode:
        raise LaunchError(_last_line(said) or f"exit code {process.returncode}")
    try:
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    except ValueError as error:
        raise LaunchError(f"printed no JSON: {error}") from error


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and whatever it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""


def records_of(plan: Plan, job: Job, start: Launch) -> list[Run | Failure]:
    """Run a job; its rows, or its failure."""
    block, busy = job.block, load()
    places: list[dict[str, Any]] = [
        {
            **{"block": block.title, "model": block.model, "turn": job.turn, "arm": arm.runtime},
            **{"k": arm.k, "strategy": arm.strategy, "experts": arm.experts},
        }
        for arm in job.arms
    ]

    def failed(error: str) -> list[Run | Failure]:
        return [Failure(**place, error=error) for place in places]

    try:
        found = zip(cycle(places), start(plan, job), strict=False)
        runs = [Run(**place, warm_up=job.warm_up, load=busy, **row) for place, row in found]
    except LaunchError as error:
        return failed(str(error))
    except TypeError as error:
        return failed(f"printed other fields than a row's: {error}")
    due = [(name, repeat) for name in block.workloads for repeat in range(block.repeats)]
    if [(run.workload, run.repeat) for run in runs] != [at for at in due for _ in job.arms]:
        return failed(f"gave {len(runs)} rows, not these: {due}")
    if short := [run for run in runs if run.tokens != block.tokens]:
        return failed(f"emitted {short[0].tokens} tokens, not {block.tokens}")
    return list(runs)


def run_plan(
    plan: Plan,
    folder: Path,
    watcher: Watcher,
    *,
    resume: bool = False,
    fresh: bool = False,
    start: Launch = launch,
) -> Rows:
    """Run what a plan says; rows go to `folder/rows.jsonl`.

    Args:
        plan: what.
        folder: where; made if need be.
        watcher: is shown every process.
        resume: go on with the rows that are there.
        fresh: replace them.
        start: runs a job.

    Raises:
        DecoderError: there are rows already and neither was asked for, or they are finished, or
            another plan's or computer's.
    """
    computer = machine(plan.device)
    computer = {**computer, "versions": {**computer["versions"], **plan.versions}}
    header = Header(plan.digest(), computer, plan.absent, plan.quick, plan.left_out)
    file = folder / ROWS
    kept = _kept(file, header, plan, resume=resume, fresh=fresh)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(file, [header, *kept])
    except OSError as error:
        raise DecoderError(f"cannot write {file}: {error.strerror}") from error
    done = {(record.block, record.turn) for record in kept}
    jobs = list(_left(plan.blocks, done))
    with file.open("a") as out:
        for index, job in enumerate(jobs):
            watcher.begin(job, index, len(jobs))
            records = records_of(plan, job, start)
            out.write("".join(map(line_of, records)))
            out.flush()
            watcher.end(job, records)
        out.write(line_of(None))
    return read_rows(file)


def _left(blocks: Sequence[Block], done: set[tuple[str, int]]) -> Iterator[Job]:
    """Jobs whose pass is not done yet, each block's after a warm-up."""
    for block in blocks:
        jobs = [job for job in jobs_of(block) if (block.title, job.turn) not in done]
        if any(not job.warm_up for job in jobs):
            yield from (job for job in jobs_of(block) if job.warm_up)
            yield from (job for job in jobs if not job.warm_up)


def _kept(
    file: Path, header: Header, plan: Plan, *, resume: bool, fresh: bool
) -> list[Run | Failure]:
    """Rows of an earlier run that count, those of whole passes."""
    if fresh or not file.exists():
        return []
    if not resume:
        raise DecoderError(f"{file} is there: --resume goes on with it, --fresh replaces it")
    _drop_broken_end(file)
    rows = read_rows(file)
    if rows.complete:
        raise DecoderError(f"{file} is finished; --fresh replaces it")
    for name, old, new in (
        ("plan", rows.header.plan, header.plan),
        ("computer", rows.header.machine, header.machine),
        ("set of runtimes", rows.header.absent, header.absent),
    ):
        if old != new:
            raise DecoderError(f"{file} is of another {name}; --fresh replaces it")
    records = [*rows.runs, *rows.failures]
    whole: set[tuple[str, int]] = set()
    for block in plan.blocks:
        for turn in range(block.passes):
            ways = {r.way for r in records if (r.block, r.turn) == (block.title, turn)}
            if ways == set(block.arms):
                whole.add((block.title, turn))
    return [r for r in records if (r.block, r.turn) in whole]


def _drop_broken_end(file: Path) -> None:
    """Cut a last line that was not written whole, as when the computer went down."""
    text = file.read_text()
    whole, newline, broken = text.rpartition("\n")
    if broken:
        _write(file, whole + newline)


def _replace(file: Path, records: Sequence[Header | Run | Failure]) -> None:
    _write(file, "".join(map(line_of, records)))


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = file.with_suffix(".partial")
    try:
        partial.write_text(text)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def only(plan: Plan, parts: Sequence[str]) -> Plan:
    """A plan with the blocks whose titles contain any of these texts.

    Raises:
        DecoderError: a text is in no title.
    """
    titles = [block.title for block in plan.blocks]
    for part in parts:
        if not any(part in title for title in titles):
            raise DecoderError(
                f"no block has {part!r} in its title; there are: {'; '.join(titles)}"
            )
    kept = tuple(b for b in plan.blocks if any(part in b.title for part in parts))
    names = {block.title for block in kept}
    return replace(plan, blocks=kept, left_out=tuple(t for t in titles if t not in names))


def quick(plan: Plan) -> Plan:
    """A plan that ends soon: each model's first block, K=0 and the depth nearest to 3, few tokens.

    It shows that everything works; its figures mean little.
    """
    firsts = {block.model: block for block in reversed(plan.blocks)}
    return replace(plan, quick=True, blocks=tuple(map(_quick, reversed(firsts.values()))))


def _quick(block: Block) -> Block:
    depths = {arm.k for arm in block.arms}
    chosen = {min(depths), min(depths, key=lambda k: abs(k - 3))}
    arms = tuple(arm for arm in block.arms if arm.k in chosen)
    return replace(
        block,
        arms=arms,
        workloads=block.workloads[:1],
        passes=2,
        tokens=min(block.tokens, 48),
        warm_up=min(block.warm_up, 4),
        repeats=1,
        slice_tokens=block.slice_tokens if len(arms) > 1 else None,
    )
