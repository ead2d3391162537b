"""The pre-merge gate: every step, one line each, one verdict, the first failure's command last.

Run by `nox -s gate`, in whose environment everything is installed. Each step's whole output
goes to reports/gate/STEP.log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "reports" / "gate"
TAIL = 30


@dataclass(frozen=True)
class Step:
    """One thing that must hold: a name, the command, and what a person types to see it again."""

    name: str
    command: tuple[str, ...]
    again: str


PYTHON = sys.executable
STEPS = (
    Step("lint", (PYTHON, "-m", "ruff", "check", "."), "python3 noxfile.py -s lint"),
    Step("format", (PYTHON, "-m", "ruff", "format", "--check", "."), "ruff format ."),
    Step("imports", ("lint-imports",), "python3 noxfile.py -s lint"),
    Step("types", ("pyright", "--project", "pyproject.toml"), "python3 noxfile.py -s types"),
    Step(
        "tests",
        (PYTHON, "-m", "pytest", "tests", "-q", "-n", "auto"),
        "python3 noxfile.py -s tests -- tests",
    ),
    Step(
        "conformance",
        (PYTHON, "-m", "mtp_conformance", "run", "--profile", "gate", "--out", str(LOGS / "run")),
        "python3 noxfile.py -s conformance -- --profile gate",
    ),
    Step(
        "golden",
        (PYTHON, "-m", "mtp_conformance", "golden", "check", "--quiet"),
        "mtp-conformance golden check",
    ),
    Step(
        "faults",
        (PYTHON, "-m", "mtp_conformance", "faults", "--smoke", "--out", str(LOGS / "faults")),
        "python3 noxfile.py -s faults -- --smoke",
    ),
)


def main() -> int:
    """Run every step; returns 0 if all hold, else 1, or 130 after Ctrl-C."""
    LOGS.mkdir(parents=True, exist_ok=True)
    failed: list[Step] = []
    try:
        for step in STEPS:
            if not _run(step):
                failed.append(step)
    except KeyboardInterrupt:
        print("\ngate: interrupted, no verdict")
        return 130
    if not failed:
        print("gate: pass")
        return 0
    print(f"\ngate: FAIL ({', '.join(step.name for step in failed)})")
    first = failed[0]
    print(f"\nend of {_log(first).relative_to(ROOT)}:")
    print("\n".join(_log(first).read_text(errors="replace").splitlines()[-TAIL:]))
    print(f"\nreproduce: {_reproduce(first)}")
    return 1


def _log(step: Step) -> Path:
    return LOGS / f"{step.name}.log"


def _run(step: Step) -> bool:
    if sys.stdout.isatty():
        print(f"  ...   {step.name}", end="\r", flush=True)
    start = time.monotonic()
    with _log(step).open("w") as log:
        code = _call(step.command, log)
    mark = "ok  " if code == 0 else "FAIL"
    print(f"{mark}  {step.name:12} {time.monotonic() - start:6.1f} s", flush=True)
    return code == 0


def _call(command: tuple[str, ...], log: IO[str]) -> int:
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", file=log)
        return 127
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        raise


def _reproduce(step: Step) -> str:
    """The failing cell's own command where the report has one, else the step's."""
    report = LOGS / "run" / "report.jsonl"
    if step.name != "conformance" or not report.exists():
        return step.again
    records = (json.loads(line) for line in report.read_text().splitlines())
    failing = (r for r in records if r.get("failure") and r.get("verdict") != "xfail")
    commands = (r["failure"]["command"] for r in failing)
    return next(commands, step.again)


if __name__ == "__main__":
    sys.exit(main())
