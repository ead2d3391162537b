"""Shards of one run, joined into the report that the whole run would have written.

What cannot be one run is refused: reports that are no shards, other manifests, versions, runtimes
or profiles, a shard that is missing or there twice, a result that is there twice, and fewer or more
results than the run selected.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from mtp_conformance.report import (
    Header,
    Report,
    ReportError,
    ReportWriter,
    Shard,
    read_report,
)
from mtp_conformance.reporting.naming import cell_name

# Machines of one CI matrix differ in their processors' names, and each run in its arguments.
_MAY_DIFFER = ("shard", "argv", "device")
_OPTION = "--shard"


class MergeError(ReportError):
    """Reports that are not the shards of one run."""


@dataclass(frozen=True)
class _Part:
    """One shard's report and where it lies."""

    path: Path
    report: Report
    shard: Shard


def merge(reports: Sequence[Path], out: Path) -> Report:
    """Join the shards into a report at ``out`` and return it.

    Its seconds are the sum of theirs. Raises ReportError for a report that cannot be trusted and
    MergeError for shards that are not exactly one run's; ``out`` is then left as it was.
    """
    if out.resolve() in [path.resolve() for path in reports]:
        raise MergeError(f"{out} is one of the shards: write the merged report elsewhere")
    parts = [_read(path) for path in reports]
    if not parts:
        raise MergeError("there is no shard to merge")
    _require_one_run(parts)
    _require_every_shard_once(parts)
    _require_no_overlap(parts)
    _require_every_cell(parts)
    return _write([part.report for part in sorted(parts, key=lambda part: part.shard.index)], out)


def _read(path: Path) -> _Part:
    try:
        report = read_report(path)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    if report.header.shard is None:
        raise MergeError(f"{path} is no shard: it was written without {_OPTION} I/N")
    return _Part(path, report, report.header.shard)


def _require_one_run(parts: Sequence[_Part]) -> None:
    first, *others = parts
    for other in others:
        both = f"{first.path} and {other.path} are of two runs"
        for name in [field.name for field in fields(Header) if field.name not in _MAY_DIFFER]:
            here, there = getattr(first.report.header, name), getattr(other.report.header, name)
            if here != there:
                raise MergeError(f"{both}: {name} is {here} in one and {there} in the other")
        if (first.shard.of, first.shard.total) != (other.shard.of, other.shard.total):
            here, there = (
                f"{shard.of} shards of {shard.total} cells" for shard in (first.shard, other.shard)
            )
            raise MergeError(f"{both}: one is of {here}, the other of {there}")


def _require_every_shard_once(parts: Sequence[_Part]) -> None:
    of, known = parts[0].shard.of, dict[int, Path]()
    for part in parts:
        index = part.shard.index
        if index in known:
            raise MergeError(f"shard {index} is there twice: {known[index]} and {part.path}")
        if not 1 <= index <= of:
            raise MergeError(f"{part.path} says it is shard {index} of {of}")
        known[index] = part.path
    missing = [str(index) for index in range(1, of + 1) if index not in known]
    if missing:
        raise MergeError(f"shard {', '.join(missing)} of {of} is missing")


def _require_no_overlap(parts: Sequence[_Part]) -> None:
    known: dict[tuple[str, str], Path] = {}
    for part in parts:
        for result in part.report.results:
            if result.key in known:
                both = f"{known[result.key]} and {part.path}"
                raise MergeError(f"shards overlap: {cell_name(result)} is in both {both}")
            known[result.key] = part.path


def _require_every_cell(parts: Sequence[_Part]) -> None:
    held, total = sum(len(part.report.results) for part in parts), parts[0].shard.total
    if held != total:
        raise MergeError(f"the shards hold {held} results of {total} cells that were selected")


def _write(parts: Sequence[Report], out: Path) -> Report:
    results = [result for part in parts for result in part.results]
    out.parent.mkdir(parents=True, exist_ok=True)
    with ReportWriter(out) as writer:
        writer.header(_header([part.header for part in parts]))
        for case in parts[0].cases:
            writer.case(case)
        for result in sorted(results, key=lambda result: result.key):
            writer.result(result)
        writer.close(sum(part.seconds for part in parts))
    return read_report(out)


def _header(headers: Sequence[Header]) -> Header:
    """The first shard's header as a whole run has it, with every device that took part."""
    devices = Counter(header.device for header in headers)
    argv = _without_shard(headers[0].argv)
    runtime = {k: v for k, v in headers[0].runtime.items() if k != "selection"}
    names = " and ".join(devices)
    return replace(headers[0], shard=None, argv=argv, device=names, runtime=runtime)


def _without_shard(argv: Sequence[str]) -> tuple[str, ...]:
    kept = [
        argument
        for before, argument in zip(("", *argv), argv, strict=False)
        if _OPTION not in (before, argument) and not argument.startswith(f"{_OPTION}=")
    ]
    return tuple(kept)
