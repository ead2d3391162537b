"""`python -m tests.faults`: the kill matrix. `mtp-conformance faults` calls it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.faults.cases import ROOT
from tests.faults.matrix import run
from tests.faults.registry import not_seeded, seeded, smoke
from tests.faults.showing import as_record, as_text, write

_EXAMPLES = """examples:
  python -m tests.faults
  python -m tests.faults --smoke
  python -m tests.faults --only skip-conv-restore --only R13 --json | jq '.faults[].by'

exit codes: 0 every fault is killed by a case of what it breaks, and nothing else is;
1 a survivor, or a false alarm; 2 a wrong argument
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Seed every fault into the decoder and see which cases notice.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made.add_argument("--smoke", action="store_true", help="one fault a kind, to its first kill")
    made.add_argument(
        "--only", metavar="ID", action="append", help="a seeded fault, or all of a public one"
    )
    made.add_argument("--list", action="store_true", help="name the faults, run nothing")
    made.add_argument("-n", "--workers", type=int, metavar="N", help="processes (one a core)")
    made.add_argument(
        "--out", type=Path, default=ROOT / "reports" / "faults", help="where faults.json goes"
    )
    made.add_argument("--quiet", action="store_true", help="no progress")
    return made


def main(argv: list[str] | None = None) -> int:
    """Make the matrix; returns 0 if it holds, else 1, or 2 for a wrong argument."""
    arguments = parser().parse_args(argv)
    faults = smoke() if arguments.smoke else seeded()
    everything = seeded()
    for id in arguments.only or ():
        if arguments.smoke and any(id in (f.id, *f.ids) for f in everything.values()):
            if not any(id in (f.id, *f.ids) for f in faults.values()):
                print(f"error: {id} is seeded and not in the smoke set", file=sys.stderr)
                return 2
            continue
        if not any(id in (fault.id, *fault.ids) for fault in faults.values()):
            reason = not_seeded().get(id)
            print(f"error: no seeded fault {id}" + f": {reason}" * bool(reason), file=sys.stderr)
            return 2
    if arguments.workers is not None and arguments.workers < 1:
        print(f"error: -n {arguments.workers}: give at least 1", file=sys.stderr)
        return 2
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # said now, and not after ten minutes
        print(f"error: --out {arguments.out}: {error.strerror}", file=sys.stderr)
        return 2
    wanted = set(arguments.only or ())
    chosen = [f for f in faults.values() if not wanted or wanted & {f.id, *f.ids}]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.id}  {' '.join(fault.ids) or fault.kind}  {fault.family.value}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mtp-faults-") as folder:
        matrix = run(
            chosen,
            Path(folder),
            workers=arguments.workers or os.cpu_count() or 1,
            first_kill=arguments.smoke,
            progress=lambda *done: None if arguments.quiet else _progress(*done),
        )
    record = as_record(matrix, not_seeded(), seeded())
    file = write(record, arguments.out)
    print(json.dumps(record, indent=1) if arguments.json else as_text(matrix, not_seeded()))
    if not arguments.json:
        print(f"the whole matrix: {file}")
    return 0 if matrix.holds else 1


def _progress(done: int, total: int, name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{done}/{total} {name}", end="\n" * (done == total), file=sys.stderr)
        sys.stderr.flush()
    elif done == total or done % 20 == 0:
        print(f"{done}/{total}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
