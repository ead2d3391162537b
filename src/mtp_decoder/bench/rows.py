"""Raw rows: one JSON object a line, written as runs end.

The file begins with a header, ends with an `end`, and holds a `run` for every prompt of every
process and a `failure` for every process that gave none. A line is written whole or not at all, but
for a computer that dies; the reader says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from mtp_decoder.bench.plan import Arm
from mtp_decoder.errors import DecoderError

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One timed decoding.

    Attributes:
        block, model, workload, turn, repeat, warm_up: where it belongs; turns count a block's
            passes, repeats the runs of a prompt in one process.
        arm: runtime.
        k, strategy, experts: how it decoded.
        prompt_tokens, tokens: lengths; the first token comes with the prompt.
        decode_seconds: from the first token to the last, by a clock outside the decoder.
        seconds: by phase, by the decoder's own clock; empty where a runtime has none.
        rounds, rewinds: how many; a round without a reject rewinds nothing.
        drafted_by_depth, accepted_by_depth: rounds that drafted, and accepted, that many.
        bytes: `remembered` by the strategy for one round at most, `peak` of MLX's memory,
            `resident` of the process at most; the last two only of an arm with a process to itself.
        experts_read: `requests`, `hits`, `reads`, `bytes_read`, `expert_bytes`, `slots`; empty
            where experts are in memory.
        tokens_digest: of the emitted tokens.
        load: running processes before it began, one-minute mean.
    """

    block: str
    model: str
    workload: str
    turn: int
    repeat: int
    warm_up: bool
    arm: str
    k: int
    strategy: str
    experts: str
    prompt_tokens: int
    tokens: int
    decode_seconds: float
    seconds: Mapping[str, float]
    rounds: int
    rewinds: int
    drafted_by_depth: Sequence[int]
    accepted_by_depth: Sequence[int]
    bytes: Mapping[str, int]
    experts_read: Mapping[str, int]
    tokens_digest: str
    load: float

    @property
    def way(self) -> Arm:
        """The arm as the plan has it."""
        return Arm(self.arm, self.k, self.strategy, self.experts)

    @property
    def speed(self) -> float:
        """Tokens a second after the first."""
        return (self.tokens - 1) / self.decode_seconds

    @property
    def rejected(self) -> int:
        """Drafts that were not accepted."""
        return sum(self.drafted_by_depth) - sum(self.accepted_by_depth)


@dataclass(frozen=True)
class Failure:
    """A process that gave no rows, and the end of what it said."""

    block: str
    model: str
    turn: int
    arm: str
    k: int
    strategy: str
    experts: str
    error: str

    @property
    def way(self) -> Arm:
        """The arm as the plan has it."""
        return Arm(self.arm, self.k, self.strategy, self.experts)


@dataclass(frozen=True)
class Header:
    """What all rows of a file have in common; `machine` as `machine.py` makes it.

    `absent` are runtimes that were asked for and are not there, and why; `quick` rows are of a plan
    that was cut down; `left_out` are titles of blocks that were not run.
    """

    plan: str
    machine: Mapping[str, Any]
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    quick: bool = False
    left_out: Sequence[str] = ()
    schema: int = SCHEMA


@dataclass
class Rows:
    """A file's content; `complete` once every process of the plan had its turn."""

    header: Header
    runs: list[Run] = field(default_factory=list[Run])
    failures: list[Failure] = field(default_factory=list[Failure])
    complete: bool = False


def line_of(record: Header | Run | Failure | None) -> str:
    """A record as its line; None is the end."""
    kind = "end" if record is None else type(record).__name__.lower()
    content: dict[str, Any] = {} if record is None else asdict(record)
    return json.dumps({"type": kind, **content}) + "\n"


def read_rows(file: Path) -> Rows:
    """Read a file of rows.

    Raises:
        DecoderError: no such file, not rows, rows of another schema, or a line is broken.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DecoderError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DecoderError(f"{file} is no text; give a rows.jsonl of `bench`") from error
    rows: Rows | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        record = _record(file, number, line)
        if rows is None:
            if not isinstance(record, Header):
                raise DecoderError(f"{file} has no header; give a rows.jsonl of `bench`")
            rows = Rows(record)
        elif rows.complete or isinstance(record, Header):
            raise DecoderError(f"{file}:{number}: two files of rows in one")
        elif isinstance(record, Run):
            rows.runs.append(record)
        elif isinstance(record, Failure):
            rows.failures.append(record)
        else:
            rows.complete = True
    if rows is None:
        raise DecoderError(f"{file} is empty; give a rows.jsonl of `bench`")
    return rows


def _record(file: Path, number: int, line: str) -> Header | Run | Failure | None:
    """The record of one line."""
    try:
        content = cast("dict[str, Any]", json.loads(line))
        kind = content.pop("type")
        if kind == "end":
            return None
        made = {"header": Header, "run": Run, "failure": Failure}[kind]
        if kind == "header" and content.get("schema") != SCHEMA:
            raise DecoderError(f"{file}: schema {content.get('schema')}, not {SCHEMA}: run it anew")
        if {f.name for f in fields(made)} != set(content):
            raise ValueError("other fields")
        return made(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DecoderError):
            raise
        raise DecoderError(f"{file}:{number}: no row of a benchmark ({error})") from error
