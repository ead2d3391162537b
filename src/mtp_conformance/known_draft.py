"""From a report to entries of known failures: as few as cover every failing cell and no other.

An entry names as few parameters as tell the failing cells of a case from those that pass, so that
it stays true for cells that later profiles add, and the beginning that their messages share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile

from mtp_conformance.case import Level, Scalar
from mtp_conformance.report import Report, Result
from mtp_conformance.verdict import Verdict

_FAILS = (Verdict.FAIL, Verdict.ERROR)
_AXES = ("model", "strategy", "k", "accepted", "dtype", "prompt_length")
_LONGEST = 100
_SHORTEST = 12
"""A shared beginning of fewer characters says too little of a failure."""

Params = Mapping[str, Scalar]


@dataclass(frozen=True)
class Draft:
    """What is the same in all entries of a file."""

    url: str
    owner: str
    expires: str
    reason: str


def draft(report: Report, common: Draft) -> str:
    """Known failures of a report's required cases as TOML; empty where none fails."""
    required = {case.id for case in report.cases if case.level is Level.MUST}
    cases = sorted({r.case for r in report.results if r.verdict in _FAILS} & required)
    entries: list[str] = []
    for case in cases:
        results = [r for r in report.results if r.case == case]
        failing = [r for r in results if r.verdict in _FAILS]
        others = [r for r in results if r.verdict not in (*_FAILS, Verdict.UNSUPPORTED)]
        entries += [
            _entry(case, params, message, common) for params, message in _cover(failing, others)
        ]
    return "\n".join(entries)


def _cover(failing: Sequence[Result], others: Sequence[Result]) -> Iterator[tuple[Params, str]]:
    """Parameters and shared messages, until every failing cell is covered."""
    left = list(failing)
    while left:
        params, covered = _widest(left, failing, others)
        yield params, _shared([_first_line(result) for result in covered])
        left = [result for result in left if result not in covered]


def _widest(
    left: Sequence[Result], failing: Sequence[Result], others: Sequence[Result]
) -> tuple[Params, Sequence[Result]]:
    """The fewest parameters that no other cell has, and of those the ones that cover most."""
    for size in range(len(_AXES) + 1):
        found: list[tuple[int, Params, list[Result]]] = []
        for names in combinations(_AXES, size):
            for result in left:
                if not all(name in result.params for name in names):
                    continue
                params = {name: result.params[name] for name in names}
                covered = [r for r in failing if _has(r, params)]
                messages = [_first_line(r) for r in covered]
                if not any(_has(r, params) for r in others) and (
                    len(covered) == 1 or len(_shared(messages)) >= _SHORTEST
                ):
                    found.append((len(covered), params, covered))
        if found:
            _, params, covered = max(found, key=lambda one: one[0])
            return params, covered
    return left[0].params, [left[0]]


def _has(result: Result, params: Params) -> bool:
    return all(result.params.get(name) == value for name, value in params.items())


def _first_line(result: Result) -> str:
    message = result.failure.message if result.failure is not None else result.reason or ""
    return message.splitlines()[0] if message else ""


def _shared(messages: Sequence[str]) -> str:
    """The beginning all messages share, cut behind a word."""
    columns = zip(*messages, strict=False)
    size = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    prefix = messages[0][: min(size, _LONGEST)]
    return prefix if len(prefix) == len(messages[0]) else prefix.rpartition(" ")[0] or prefix


def _entry(case: str, params: Params, message: str, common: Draft) -> str:
    lines = ["[[known]]", f"case = {_text(case)}"]
    if params:
        pairs = ", ".join(f"{name} = {_text(value)}" for name, value in params.items())
        lines.append(f"params = {{ {pairs} }}")
    lines += [
        f"message = {_text(message)}",
        f"reason = {_text(common.reason)}",
        f"url = {_text(common.url)}",
        f"owner = {_text(common.owner)}",
        f"expires = {common.expires}",
    ]
    return "\n".join(lines) + "\n"


def _text(value: Scalar) -> str:
    return json.dumps(value, ensure_ascii=False)
