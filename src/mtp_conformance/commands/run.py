"""`mtp-conformance run`: judge a runtime by the cases."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mtp_conformance.case import Level
from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.common import add_runtime_options, opened, say
from mtp_conformance.failure import UsageError
from mtp_conformance.known_run import STALE
from mtp_conformance.plugin import PROFILES, SETTINGS
from mtp_conformance.report import Report, ReportError, partial_path, read_report
from mtp_conformance.reporting.pages import remove_all
from mtp_conformance.suite import SuiteError, load_cases, suite_root
from mtp_conformance.verdict import Verdict

PASSED, FAILED, UNUSABLE, INCONCLUSIVE = 0, 1, 2, 3
_INTERRUPTED, _USAGE, _NOTHING = 2, 4, 5  # pytest's exit codes
_NOTHING_SELECTED = (
    "no cell was selected; -k matches ids such as [gdn-tape-k3-a1-bfloat16-p2], with the "
    "runtime's own strategies in place of tape, and --case an id of `mtp-conformance list`"
)
_REPORT = "report.jsonl"
_BAD = {Verdict.FAIL, Verdict.ERROR, Verdict.XPASS}
_OPEN = {Verdict.INCONCLUSIVE, Verdict.NEAR_TIE}
_SETTINGS = Path(__file__).parents[1] / SETTINGS
_PASSED_ON = (
    "profile",
    "device",
    "mx_compile",
    "time_limit",
    "runtime",
    "runtime_cmd",
    "shard",
    "strategies",
    "max_draft_tokens",
    "seed",
)
_EXAMPLES = """examples:
  mtp-conformance run --out reports/mine --runtime my_adapter:make_runtime
  mtp-conformance run --runtime-cmd "python -m my_adapter" --profile smoke
  mtp-conformance run --case rewind.state.one-round -k "gdn and tape"
  mtp-conformance run --shard 1/4 --out shard-1

exit codes: 0 all required cases pass; 1 one failed; 2 usage, runtime or file error;
3 inconclusive: a witness was not met, or a stream leaves K=0's at a proven near-tie
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run",
        help="judge a runtime; writes report.jsonl and the pages made from it",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_runtime_options(parser)
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("reports/mtp-conformance"),
        help="where the report goes (reports/mtp-conformance)",
    )
    add("--profile", choices=PROFILES, default="default")
    add("--shard", metavar="I/N", help="run the I-th of N parts; join with `report merge`")
    add("--case", metavar="ID", action="append", default=[], help="only this case; repeatable")
    add("-k", metavar="EXPRESSION", help="only cells whose id matches, as pytest's -k")
    add(
        "-n",
        metavar="N",
        type=_workers,
        default="auto",
        help="worker processes (auto); 0 runs in one",
    )
    add("-x", action="store_true", help="stop at the first failure")
    add("--device", choices=("cpu", "gpu"), default="cpu")
    add(
        "--row-exact",
        action="store_true",
        help="the runtime verifies row by row: bits are demanded on any device",
    )
    add("--mx-compile", choices=("off", "on"), default="off")
    add("--seed", metavar="N", default="0", help="of weights, text and stories (0)")
    add("--known", metavar="FILE", action="append", default=[], help="known failures")
    add("--quiet", action="store_true", help="no progress, the summary alone")
    add("--json", action="store_true", help="counts as JSON instead of the summary")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the cases in a pytest of their own; returns the exit code above."""
    root = suite_root()
    _check_cases(arguments.case, root)
    _check_expression(arguments.k)
    with opened(arguments) as oracles:  # a runtime that does not answer is said at once
        arguments.strategies = ",".join(oracles.description.strategies)
        arguments.max_draft_tokens = oracles.description.max_draft_tokens
    return _judge(arguments, root)


def _judge(arguments: argparse.Namespace, root: Path) -> int:
    out = arguments.out.resolve()
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {arguments.out} is a file; name a folder for the report")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {arguments.out}: {error.strerror}") from error
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH", ""))))
    _remove_earlier(out)
    command = [sys.executable, "-m", "pytest", *_pytest_arguments(arguments, root, out)]
    ended = _run_to_its_end(command, {**os.environ, "PYTHONPATH": path}, quiet=arguments.json)
    if ended in (_INTERRUPTED, -signal.SIGINT):
        partial = partial_path(out / _REPORT)
        kept = f"what ended before is in {partial}" if partial.exists() else "nothing had ended"
        say(f"interrupted; {kept}")
        return 130
    if ended == _USAGE:
        return UNUSABLE  # pytest has said why
    try:
        report = read_report(out / _REPORT)
    except (ReportError, OSError) as error:
        why = _NOTHING_SELECTED if ended == _NOTHING else str(error)
        say(f"error: no complete report: {why} (pytest ended with {ended})")
        return UNUSABLE
    code = FAILED if ended == STALE else exit_code(report)
    if arguments.json:
        counts = {str(verdict): n for verdict, n in report.counts.items()}
        print(json.dumps({"counts": counts, "exit": code, "seconds": report.seconds}))
    return code


def exit_code(report: Report) -> int:
    """0, 1 or 3, by the verdicts of required cases; a run that passed nothing proves nothing."""
    required = {case.id for case in report.cases if case.level is Level.MUST}
    verdicts = Counter(r.verdict for r in report.results if r.case in required)
    if any(verdicts[verdict] for verdict in _BAD):
        return FAILED
    if any(verdicts[verdict] for verdict in _OPEN):
        return INCONCLUSIVE
    passed = any(result.verdict is Verdict.PASS for result in report.results)
    return PASSED if passed else INCONCLUSIVE


def _run_to_its_end(command: list[str], environment: dict[str, str], *, quiet: bool) -> int:
    """Run pytest; after Ctrl-C, which it gets too, wait until it has written what it has."""
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, env=environment, stdout=output)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def _remove_earlier(out: Path) -> None:
    """Remove an earlier run's report and pages, so that they cannot be taken for this one's."""
    report = out / _REPORT
    report.unlink(missing_ok=True)
    partial_path(report).unlink(missing_ok=True)
    remove_all(out)


def _check_cases(chosen: Sequence[str], root: Path) -> None:
    """Refuse a case id that no case has.

    Raises:
        SuiteError: names it, and where to look.
    """
    known = {registration.case.id for registration in load_cases(root)} if chosen else set(chosen)
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise SuiteError(f"there is no case {', '.join(unknown)}; `mtp-conformance list` has all")


def _workers(text: str) -> str:
    """A number of worker processes, or `auto`; anything else is refused by the option's name."""
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor auto")
    return text


def _check_expression(text: str | None) -> None:
    """Refuse a -k that pytest could not read, before workers meet it.

    Raises:
        UsageError: says where it is wrong.
    """
    from _pytest.mark.expression import Expression  # pytest has no public name for it

    try:
        Expression.compile(text or "")
    except SyntaxError as error:  # what pytest's own parse error is derived from
        raise UsageError(f"-k {text!r}: {error}") from error


def _pytest_arguments(arguments: argparse.Namespace, root: Path, out: Path) -> list[str]:
    made = [str(root / "conformance"), "-c", str(_SETTINGS), "--rootdir", str(root)]
    made += ["-p", "mtp_conformance.plugin", "-p", "no:cacheprovider", "--report", str(out)]
    for name in _PASSED_ON:
        value = getattr(arguments, name)
        if value is not None:
            made += [f"--{name.replace('_', '-')}", str(value)]
    if arguments.row_exact:
        made += ["--row-exact"]
    for file in arguments.known:
        made += ["--known", file]
    for case in arguments.case:
        made += ["--case", case]
    if arguments.k:
        made += ["-k", arguments.k]
    if arguments.x:
        made.append("-x")
    made.append("-qq" if arguments.quiet else "-q")
    if importlib.util.find_spec("xdist") is not None:
        made += ["-n", arguments.n, "--dist", "loadgroup", "--max-worker-restart", "0"]
    return made
