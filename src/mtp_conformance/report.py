"""The report: one JSONL file that every other view of a run is derived from.

Lines are records with a ``type``: one ``header``, then ``case`` and ``result`` records, then one
``footer`` whose counts the reader holds against the results, and whose last field ``sha256`` is the
digest of every byte of the file before that field, so that no edit goes unseen. A run that ends
early leaves ``*.partial.jsonl`` with ``complete: false``, which the reader refuses.
"""

import hashlib
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

import mlx.core as mx

from mtp_conformance.case import Case, Level, Scalar
from mtp_conformance.verdict import Verdict

SCHEMA = 1
_DISTRIBUTION = "mtp-conformance"
_DIGEST_FIELD = ',"sha256":"'  # what follows the last byte that the digest covers
_DIGEST_END = '"}\n'

Record = dict[str, object]
_T = TypeVar("_T")


class ReportError(Exception):
    """A report that cannot be trusted; ``line`` is where it shows, None for the file as a whole."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line


@dataclass(frozen=True)
class GitState:
    """The commit a run was made from, and whether the tree had other changes."""

    commit: str
    dirty: bool


@dataclass(frozen=True)
class Shard:
    """Which part of a run a report holds: ``index`` of ``of``, from 1; ``total`` cells in all."""

    index: int
    of: int
    total: int


@dataclass(frozen=True)
class Header:
    """What was run, with what, where and on which day (UTC).

    ``manifest`` is the hash of the case metadata. ``shard`` is absent from the report of a whole
    run, ``probe`` from one that probed nothing.
    """

    suite_version: str
    git: GitState | None
    manifest: str
    runtime: Mapping[str, object]
    mlx: str
    mlx_lm: str | None
    python: str
    platform: str
    device: str
    profile: str
    seed: int | None
    argv: tuple[str, ...]
    shard: Shard | None = None
    probe: Mapping[str, object] | None = None
    date: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True)
class Rung:
    """One step of the K ladder: the token at which a run with ``k`` drafts parts from K=0."""

    k: int
    diverges_at: int | None


@dataclass(frozen=True)
class Minimal:
    """The smallest run that still fails. A round is (drafts, how many of them were accepted)."""

    prompt_length: int
    k: int
    rounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Failure:
    """Where a result went wrong, as far as it is known, and the command that shows it again.

    ``margin`` is the distance of the two highest logits, ``stderr`` the end of what the runtime
    wrote there.
    """

    message: str
    command: str
    layer: str | None = None
    component: str | None = None
    round: int | None = None
    index: tuple[int, ...] | None = None
    actual_bits: str | None = None
    expected_bits: str | None = None
    ulp: int | None = None
    ladder: tuple[Rung, ...] | None = None
    minimal: Minimal | None = None
    margin: float | None = None
    stderr: str | None = None


@dataclass(frozen=True)
class Result:
    """The verdict of one case on one cell. ``reason`` says why it did not count, if it did not."""

    case: str
    params: Mapping[str, Scalar]
    verdict: Verdict
    seconds: float
    witness: Mapping[str, int] = field(default_factory=dict[str, int])
    failure: Failure | None = None
    reason: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What a report holds at most once: the case and its parameters."""
        return self.case, json.dumps(dict(self.params), sort_keys=True)


@dataclass(frozen=True)
class Report:
    """A complete report. ``counts`` are of results, by verdict; ``memory`` is bytes by name."""

    header: Header
    cases: tuple[Case, ...]
    results: tuple[Result, ...]
    counts: Mapping[Verdict, int]
    seconds: float
    memory: Mapping[str, int] = field(default_factory=dict[str, int])


# --- records out -------------------------------------------------------------------------------


def header_record(header: Header) -> Record:
    """The JSON form of a header; ``shard`` and ``probe`` are left out where there is none."""
    return _without({"type": "header", **asdict(header)}, "shard", "probe")


def case_record(case: Case) -> Record:
    """The JSON form of a case."""
    return {"type": "case", "area": case.area, **asdict(case), "level": case.level.value}


def result_record(result: Result) -> Record:
    """The JSON form of a result; what is not known is left out."""
    record: Record = {
        "type": "result",
        "case": result.case,
        "params": dict(result.params),
        "verdict": result.verdict.value,
        "seconds": result.seconds,
        "witness": dict(result.witness),
    }
    if result.failure is not None:
        optional = ("ladder", "minimal", "margin", "stderr")
        record["failure"] = _without(asdict(result.failure), *optional)
    if result.reason is not None:
        record["reason"] = result.reason
    return record


def _without(record: Record, *optional: str) -> Record:
    return {name: v for name, v in record.items() if v is not None or name not in optional}


def manifest_hash(cases: Iterable[Case]) -> str:
    """sha256 over the metadata of the cases, sorted by id."""
    records = [case_record(case) for case in sorted(cases, key=lambda case: case.id)]
    text = json.dumps(records, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def partial_path(path: Path) -> Path:
    """Where a report lies until it is complete: ``report.jsonl`` → ``report.partial.jsonl``."""
    return path.with_name(f"{path.stem}.partial.jsonl")


class ReportWriter:
    """Writes a report beside its final name and renames it when it is complete.

    As a context manager it closes at the end and aborts on an exception. Opening removes an older
    report of the same name: after a run that died, no report is better than another run's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = partial_path(path)
        self._counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        path.unlink(missing_ok=True)
        # A line at a time, so that a process that is killed leaves what it knew.
        self._file = self.partial.open("w", buffering=1, encoding="utf-8", newline="\n")

    def header(self, header: Header) -> None:
        """Write the header; it comes first."""
        self._write(header_record(header))

    def case(self, case: Case) -> None:
        """Write one case."""
        self._write(case_record(case))

    def result(self, result: Result) -> None:
        """Write one result and count it."""
        self._counts[result.verdict.value] += 1
        self._write(result_record(result))

    def close(self, seconds: float, memory: Mapping[str, int] | None = None) -> Path:
        """Write the footer, move the report to its final name and return that."""
        self._finish(seconds, complete=True, memory=memory)
        return self.partial.replace(self.path)

    def abort(self, seconds: float) -> Path:
        """Write a footer that says the report is incomplete; return the partial file's name."""
        self._finish(seconds, complete=False)
        return self.partial

    def __enter__(self) -> "ReportWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            self.abort(0.0)

    def _finish(
        self, seconds: float, *, complete: bool, memory: Mapping[str, int] | None = None
    ) -> None:
        counts = {name: self._counts[name] for name in sorted(self._counts)}
        record: Record = {"type": "footer", "counts": counts, "complete": complete}
        record |= {"memory": dict(memory)} if memory else {}
        footer = _json({**record, "seconds": seconds}).removesuffix("}")
        self._digest.update(footer.encode())
        self._file.write(f"{footer}{_DIGEST_FIELD}{self._digest.hexdigest()}{_DIGEST_END}")
        self._file.close()

    def _write(self, record: Record) -> None:
        line = _json(record) + "\n"
        self._digest.update(line.encode())
        self._file.write(line)


def _json(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


# --- records in --------------------------------------------------------------------------------


def read_report(path: Path) -> Report:
    """Read a report, or raise ReportError with the reason and the line for one not to be trusted.

    Refused: an empty report, lines that are not JSON records of a known type and shape, a missing
    header or footer, an incomplete run, a case or a result that appears twice, a result whose case
    has no record, counts that are not those of the results, a manifest hash that is not that of
    the cases, and any other change since the run, by the footer's digest.
    """
    content = _content(path)
    lines = list(_records(content))
    if not lines:
        raise ReportError("the report is empty")
    header = _read_header(lines[0])
    footer = _read_footer(lines)
    cases, results = _read_body(lines[1:-1])
    if not results:
        raise ReportError("the report is empty: it holds no result")
    counts = Counter(result.verdict for result in results)
    if footer.counts("counts") != {verdict.value: n for verdict, n in counts.items()}:
        raise footer.error("the counts are not those of the results")
    if header.manifest != manifest_hash(cases):
        raise lines[0].error("the manifest hash is not that of the cases")
    _check_digest(content, footer)
    memory = {} if footer.data.get("memory") is None else footer.counts("memory")
    return Report(header, cases, results, counts, footer.number("seconds"), memory)


def read_case(record: Mapping[str, object]) -> Case:
    """The case of a ``case`` record. Raises ReportError when it is malformed."""
    return _read_case(_Fields(record))


def read_result(record: Mapping[str, object]) -> Result:
    """The result of a ``result`` record. Raises ReportError when it is malformed."""
    return _read_result(_Fields(record))


@dataclass(frozen=True)
class _Fields:
    """A record with typed access to its fields; complaints name the line."""

    data: Mapping[str, object]
    line: int | None = None

    def error(self, reason: str) -> ReportError:
        return ReportError(reason, self.line)

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def optional_text(self, name: str) -> str | None:
        return None if self.data.get(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        value = self._typed(name, int)
        if isinstance(value, bool):
            raise self.error(f"{name!r} is no integer")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.data.get(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self.data.get(name)
        return value if isinstance(value, float) else float(self.integer(name))

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def items(self, name: str) -> list[object]:
        value = self.data.get(name)
        if not isinstance(value, list | tuple):
            raise self.error(f"{name!r} is no list")
        return list(cast("list[object]", value))

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"{name!r} holds something else than text")
        return tuple(cast("list[str]", values))

    def mapping(self, name: str) -> dict[str, object]:
        return dict(cast("dict[str, object]", self._typed(name, dict)))

    def nested(self, name: str) -> "_Fields":
        return _Fields(self.mapping(name), self.line)

    def optional(self, name: str) -> "_Fields | None":
        return None if self.data.get(name) is None else self.nested(name)

    def counts(self, name: str) -> dict[str, int]:
        counts = self.nested(name)
        return {key: counts.integer(key) for key in counts.data}

    def scalars(self, name: str) -> dict[str, Scalar]:
        values = self.mapping(name)
        if not all(isinstance(value, str | int | float) for value in values.values()):
            raise self.error(f"{name!r} holds something else than text and numbers")
        return cast("dict[str, Scalar]", values)

    def _typed(self, name: str, kind: type[_T]) -> _T:
        value = self.data.get(name)
        if not isinstance(value, kind):
            raise self.error(f"{name!r} is missing or no {kind.__name__}")
        return value


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReportError(f"cannot be read: {error.strerror}") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _records(content: bytes) -> Iterator[_Fields]:
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            value: object = json.loads(line, parse_constant=_no_constant)
        except ValueError as error:
            raise ReportError(f"not JSON: {error}", number) from error
        if not isinstance(value, dict):
            raise ReportError("not a JSON object", number)
        fields = _Fields(cast("dict[str, object]", value), number)
        if fields.data.get("type") not in ("header", "case", "result", "footer"):
            raise fields.error(f"unknown record type {fields.data.get('type')!r}")
        yield fields


def _check_digest(content: bytes, footer: _Fields) -> None:
    """Refuse a file that is not, byte for byte, what a writer closed."""
    if "sha256" not in footer.data:
        raise footer.error("the footer has no digest: it was edited, or written by an older suite")
    covered, _, _ = content.rpartition(_DIGEST_FIELD.encode())
    end = f"{_DIGEST_FIELD}{hashlib.sha256(covered).hexdigest()}{_DIGEST_END}"
    if content[len(covered) :] != end.encode():
        raise footer.error("the digest is not that of the report: it was edited after the run")


def _read_header(fields: _Fields) -> Header:
    if fields.data["type"] != "header":
        raise fields.error("the header is missing")
    if fields.integer("schema") != SCHEMA:
        raise fields.error(f"schema {fields.integer('schema')} is not {SCHEMA}")
    return Header(
        suite_version=fields.text("suite_version"),
        git=_read_git(fields),
        manifest=fields.text("manifest"),
        runtime=fields.mapping("runtime"),
        mlx=fields.text("mlx"),
        mlx_lm=fields.optional_text("mlx_lm"),
        python=fields.text("python"),
        platform=fields.text("platform"),
        device=fields.text("device"),
        profile=fields.text("profile"),
        seed=fields.optional_integer("seed"),
        argv=fields.texts("argv"),
        shard=_read_shard(fields),
        probe=None if fields.data.get("probe") is None else fields.mapping("probe"),
        date=fields.optional_text("date") or "",
    )


def _read_shard(fields: _Fields) -> Shard | None:
    shard = fields.optional("shard")
    if shard is None:
        return None
    return Shard(shard.integer("index"), shard.integer("of"), shard.integer("total"))


def _read_git(fields: _Fields) -> GitState | None:
    git = fields.optional("git")
    return None if git is None else GitState(git.text("commit"), git.flag("dirty"))


def _read_footer(lines: list[_Fields]) -> _Fields:
    footer = lines[-1]
    if footer.data["type"] != "footer":
        raise footer.error("the footer is missing")
    if not footer.flag("complete"):
        raise footer.error("the run is incomplete")
    return footer


def _read_body(lines: list[_Fields]) -> tuple[tuple[Case, ...], tuple[Result, ...]]:
    cases: dict[str, Case] = {}
    results: dict[tuple[str, str], tuple[_Fields, Result]] = {}
    for fields in lines:
        if fields.data["type"] == "case":
            case = _read_case(fields)
            if case.id in cases:
                raise fields.error(f"case {case.id} appears twice")
            cases[case.id] = case
        elif fields.data["type"] == "result":
            result = _read_result(fields)
            if result.key in results:
                raise fields.error(f"the result of {' '.join(result.key)} appears twice")
            results[result.key] = fields, result
        else:
            raise fields.error(f"a second {fields.data['type']}")
    for fields, result in results.values():
        if result.case not in cases:
            raise fields.error(f"case {result.case} has no record")
    return tuple(cases.values()), tuple(result for _, result in results.values())


def _read_case(fields: _Fields) -> Case:
    try:
        return Case(
            id=fields.text("id"),
            clause=fields.text("clause"),
            level=Level(fields.text("level")),
            needs=fields.texts("needs"),
            oracle=fields.text("oracle"),
            witness=fields.text("witness"),
            faults=fields.texts("faults"),
            since=fields.text("since"),
            summary=fields.text("summary"),
        )
    except ValueError as error:
        raise fields.error(str(error)) from error


def _read_result(fields: _Fields) -> Result:
    verdict = fields.text("verdict")
    if verdict not in [known.value for known in Verdict]:
        raise fields.error(f"unknown verdict {verdict!r}")
    return Result(
        case=fields.text("case"),
        params=fields.scalars("params"),
        verdict=Verdict(verdict),
        seconds=fields.number("seconds"),
        witness=fields.counts("witness"),
        failure=_read_failure(fields),
        reason=fields.optional_text("reason"),
    )


def _read_failure(fields: _Fields) -> Failure | None:
    failure = fields.optional("failure")
    if failure is None:
        return None
    return Failure(
        message=failure.text("message"),
        command=failure.text("command"),
        layer=failure.optional_text("layer"),
        component=failure.optional_text("component"),
        round=failure.optional_integer("round"),
        index=_read_index(failure),
        actual_bits=failure.optional_text("actual_bits"),
        expected_bits=failure.optional_text("expected_bits"),
        ulp=failure.optional_integer("ulp"),
        ladder=_read_ladder(failure),
        minimal=_read_minimal(failure),
        margin=None if failure.data.get("margin") is None else failure.number("margin"),
        stderr=failure.optional_text("stderr"),
    )


def _read_ladder(fields: _Fields) -> tuple[Rung, ...] | None:
    if fields.data.get("ladder") is None:
        return None
    rungs = [_Fields({"rung": rung}, fields.line).nested("rung") for rung in fields.items("ladder")]
    return tuple(Rung(rung.integer("k"), rung.optional_integer("diverges_at")) for rung in rungs)


def _read_minimal(fields: _Fields) -> Minimal | None:
    minimal = fields.optional("minimal")
    if minimal is None:
        return None
    rounds = [_read_round(minimal, pair) for pair in minimal.items("rounds")]
    return Minimal(minimal.integer("prompt_length"), minimal.integer("k"), tuple(rounds))


def _read_round(fields: _Fields, pair: object) -> tuple[int, int]:
    numbers = cast("list[object]", pair) if isinstance(pair, list | tuple) else []
    if len(numbers) != 2:
        raise fields.error("'rounds' holds something else than pairs")
    named = _Fields(dict(zip(("drafts", "accepted"), numbers, strict=True)), fields.line)
    return named.integer("drafts"), named.integer("accepted")


def _read_index(fields: _Fields) -> tuple[int, ...] | None:
    if fields.data.get("index") is None:
        return None
    index = fields.items("index")
    if not all(isinstance(place, int) for place in index):
        raise fields.error("'index' holds something else than integers")
    return tuple(cast("list[int]", index))


# --- the environment of a run ------------------------------------------------------------------


def environment_header(
    *,
    git: GitState | None,
    cases: Iterable[Case],
    runtime: Mapping[str, object],
    profile: str,
    seed: int | None,
    argv: Iterable[str],
    shard: Shard | None = None,
    probe: Mapping[str, object] | None = None,
) -> Header:
    """The header of a run in this process."""
    return Header(
        suite_version=_version(_DISTRIBUTION) or "unknown",
        git=git,
        manifest=manifest_hash(cases),
        runtime=runtime,
        mlx=_version("mlx") or "unknown",
        mlx_lm=_version("mlx-lm"),
        python=platform.python_version(),
        platform=f"{sys.platform}-{platform.machine()}",
        device=_device(),
        profile=profile,
        seed=seed,
        argv=tuple(argv),
        shard=shard,
        probe=probe,
        date=datetime.now(timezone.utc).date().isoformat(),
    )


def git_state(root: Path) -> GitState | None:
    """The state of the checkout that ``root`` lies in; None outside git or without git."""
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return GitState(commit, dirty=bool(changes))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> str:
    kind = mx.default_device().type.name
    return f"{kind}: {mx.device_info().get('device_name', 'unknown')}"
