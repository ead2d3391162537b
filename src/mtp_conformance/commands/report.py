"""``mtp-conformance report``: pages of a report, shards joined into one, runtimes compared."""

import argparse
import sys
from pathlib import Path

from mtp_conformance.commands import Subparsers
from mtp_conformance.report import ReportError, read_report

_REPORT_NAME = "report.jsonl"
_USAGE = """mtp-conformance report FILE [--out DIR]
       mtp-conformance report merge FILE [FILE ...] --out FILE
       mtp-conformance report matrix DIR [DIR ...] --out DIR
       mtp-conformance report known FILE --out FILE --url URL --owner OWNER --expires DATE"""
_EXAMPLES = """examples:
  mtp-conformance report reports/conformance/report.jsonl
      check a report and write report.html, junit.xml, summary.md and badge.json beside it
  mtp-conformance report run/report.jsonl --out pages
      the same, into another folder
  mtp-conformance report merge shard-1 shard-2 --out whole/report.jsonl
      join the reports of `--shard 1/2` and `--shard 2/2`, and write the pages beside the result
  mtp-conformance report matrix reports/peers/* --out docs
      put runtimes judged by the same cases beside each other: matrix.md and matrix.html
  mtp-conformance report known mine --out known.toml --url https://... --owner me \\
      --expires 2027-06-30
      list what fails in a report as known failures, for --known; add to each what its reason is

A folder stands for the report.jsonl in it; a report in a file named `merge`, `matrix` or `known`
is ./merge and so on.
exit status: 0 done; 2 a wrong argument, or a report that is refused, with the reason
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``report`` to the command line."""
    parser = subparsers.add_parser(
        "report",
        help="write the pages of a report, or merge shards",
        description="Write the pages of a report, or join the reports of shards into one.",
        usage=_USAGE,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a report, or `merge` and shards")
    parser.add_argument("--out", type=Path, help="folder of the pages; for merge the new report")
    parser.add_argument("--url", help="known: where the failures are being dealt with")
    parser.add_argument("--owner", help="known: who removes the entries")
    parser.add_argument("--expires", help="known: the last day on which they count, YYYY-MM-DD")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; 0 when done, 2 with a line on stderr when not."""
    first, *others = map(str, arguments.files)
    try:
        if first == "merge":
            return _merge(others, arguments.out)
        if first == "matrix":
            return _matrix(others, arguments.out)
        if first == "known":
            return _known(others, arguments)
        if others:
            return _complain("one report at a time; `report merge` joins the shards of a run")
        return _pages(report_path(first), arguments.out)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}")


def report_path(name: str) -> Path:
    """The report of that name: a folder stands for the ``report.jsonl`` in it."""
    path = Path(name)
    return path / _REPORT_NAME if path.is_dir() else path


def _pages(path: Path, folder: Path | None) -> int:
    from mtp_conformance.reporting.pages import write_all  # jinja2 is slow to import

    try:
        report = read_report(path)
    except ReportError as error:
        return _complain(f"{path}: {error}")
    for page in write_all(report, path.parent if folder is None else folder):
        print(page)
    return 0


def _merge(names: list[str], out: Path | None) -> int:
    from mtp_conformance.reporting.merge import merge
    from mtp_conformance.reporting.pages import write_all

    if not names or out is None:
        return _complain("merge takes the reports of all shards and --out FILE")
    target = report_path(str(out))
    try:
        report = merge([report_path(name) for name in names], target)
    except ReportError as error:
        return _complain(str(error))
    for path in (target, *write_all(report, target.parent)):
        print(path)
    return 0


def _matrix(names: list[str], out: Path | None) -> int:
    from mtp_conformance.reporting.matrix import render
    from mtp_conformance.reporting.pages import write_whole

    if not names or out is None:
        return _complain("matrix takes the folders of reports and --out DIR")
    try:
        pages = render([_folder(name) for name in names])
    except ReportError as error:
        return _complain(str(error))
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        print(write_whole(out / name, text))
    return 0


def _folder(name: str) -> Path:
    """The folder a report lies in: a name that is no file stands for a folder."""
    path = Path(name)
    return path.parent if path.is_file() else path


def _known(names: list[str], arguments: argparse.Namespace) -> int:
    from mtp_conformance.known import read_known
    from mtp_conformance.known_draft import Draft, draft
    from mtp_conformance.reporting.pages import write_whole
    from mtp_conformance.toml_table import TomlError

    given = (arguments.out, arguments.url, arguments.owner, arguments.expires)
    if len(names) != 1 or None in given:
        return _complain("known takes one report, --out, --url, --owner and --expires")
    try:
        report = read_report(report_path(names[0]))
    except ReportError as error:
        return _complain(f"{names[0]}: {error}")
    name = str(report.header.runtime.get("name", "the runtime"))
    text = draft(report, Draft(*given[1:], reason=f"Fails in {name}; not looked into yet."))
    if not text:
        return _complain(f"{names[0]}: no required case fails in it")
    if arguments.out.exists():
        return _complain(f"{arguments.out} is there already; name another file")
    write_whole(arguments.out, text)
    try:
        print(f"{len(read_known([arguments.out]))} entries in {arguments.out}")
    except TomlError as error:
        arguments.out.unlink()
        return _complain(str(error))
    return 0


def _complain(reason: str) -> int:
    print(f"mtp-conformance report: {reason}", file=sys.stderr)
    return 2
