"""Two reports of one manifest compared: which verdicts changed, and whether anything got worse.

Worse is a verdict further from pass in the order of ``severity``, and a result that is gone
although its case is still there: a run that judges less proves less.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from mtp_conformance.report import Report, ReportError, Result, case_record
from mtp_conformance.reporting.naming import cell_name
from mtp_conformance.reporting.severity import severity
from mtp_conformance.verdict import Verdict

_NAMED_CASES = 20


class ManifestsDiffer(ReportError):
    """Two reports whose cases are not the same, so that their verdicts do not compare."""


@dataclass(frozen=True)
class Change:
    """A result whose verdict is another one now."""

    before: Result
    after: Result

    @property
    def worse(self) -> bool:
        """Whether the new verdict is further from a pass."""
        return severity(self.after.verdict) > severity(self.before.verdict)


@dataclass(frozen=True)
class Diff:
    """What changed. ``lost`` are removed results of cases that the new report still has."""

    fixed: tuple[Change, ...]
    broken: tuple[Change, ...]
    other: tuple[Change, ...]
    added: tuple[Result, ...]
    removed: tuple[Result, ...]
    lost: tuple[Result, ...]
    same: int

    @property
    def worse(self) -> bool:
        """Whether a verdict got worse or a result was lost."""
        changed = (*self.fixed, *self.broken, *self.other)
        return bool(self.lost) or any(change.worse for change in changed)


def diff(old: Report, new: Report, *, allow_manifest_change: bool = False) -> Diff:
    """What changed from the old report to the new one.

    Raises ManifestsDiffer, naming both hashes and the cases, unless a change is allowed.
    """
    if old.header.manifest != new.header.manifest and not allow_manifest_change:
        raise ManifestsDiffer(_manifests(old, new))
    before = {result.key: result for result in old.results}
    after = {result.key: result for result in new.results}
    both = [Change(before[key], after[key]) for key in sorted(before.keys() & after.keys())]
    changes = [change for change in both if change.before.verdict is not change.after.verdict]
    cases = {case.id for case in new.cases}
    removed = tuple(before[key] for key in sorted(before.keys() - after.keys()))
    return Diff(
        fixed=tuple(c for c in changes if c.after.verdict is Verdict.PASS),
        broken=tuple(c for c in changes if c.before.verdict is Verdict.PASS),
        other=tuple(c for c in changes if Verdict.PASS not in (c.before.verdict, c.after.verdict)),
        added=tuple(after[key] for key in sorted(after.keys() - before.keys())),
        removed=removed,
        lost=tuple(result for result in removed if result.case in cases),
        same=len(both) - len(changes),
    )


def render_text(found: Diff) -> str:
    """The comparison for a terminal: what got worse first, with commands."""
    lines = [
        *_changes("broken", found.broken),
        *_changes("changed", found.other),
        *_results("removed", found.removed),
        *_changes("fixed", found.fixed),
        *_results("added", found.added),
    ]
    counts = ", ".join(f"{len(items)} {name}" for name, items in _groups(found))
    verdict = "worse" if found.worse else "not worse"
    return "\n".join([*lines, f"{verdict}: {counts}, {found.same} as before"]) + "\n"


def render_json(found: Diff) -> str:
    """The comparison for a machine."""
    record: dict[str, object] = {"worse": found.worse, "same": found.same}
    for name, changes in (("fixed", found.fixed), ("broken", found.broken), ("other", found.other)):
        record[name] = [_change_record(change) for change in changes]
    for name, results in (("added", found.added), ("removed", found.removed)):
        record[name] = [_result_record(result) for result in results]
    return json.dumps(record, indent=2) + "\n"


def _groups(found: Diff) -> Iterable[tuple[str, tuple[object, ...]]]:
    yield "fixed", found.fixed
    yield "broken", found.broken
    yield "changed otherwise", found.other
    yield "added", found.added
    yield "removed", found.removed


def _changes(word: str, changes: Iterable[Change]) -> Iterable[str]:
    for change in changes:
        yield f"{word}: {cell_name(change.after)}: {change.before.verdict} → {change.after.verdict}"
        if change.worse and change.after.failure is not None:
            yield f"  {change.after.failure.message.partition(chr(10))[0]}"
            yield f"  {change.after.failure.command}"


def _results(word: str, results: Iterable[Result]) -> Iterable[str]:
    return (f"{word}: {cell_name(result)}: {result.verdict}" for result in results)


def _change_record(change: Change) -> dict[str, object]:
    return {
        "case": change.after.case,
        "params": dict(change.after.params),
        "before": change.before.verdict.value,
        "after": change.after.verdict.value,
        "worse": change.worse,
    }


def _result_record(result: Result) -> dict[str, object]:
    return {
        "case": result.case,
        "params": dict(result.params),
        "verdict": result.verdict.value,
    }


def _manifests(old: Report, new: Report) -> str:
    before = {case.id: case_record(case) for case in old.cases}
    after = {case.id: case_record(case) for case in new.cases}
    changed = [id for id in before.keys() & after.keys() if before[id] != after[id]]
    differing = [
        *_named("only in the old one", before.keys() - after.keys()),
        *_named("only in the new one", after.keys() - before.keys()),
        *_named("changed", changed),
    ]
    return (
        f"the reports are of two manifests, {old.header.manifest} and {new.header.manifest}: "
        f"{'; '.join(differing)}. --allow-manifest-change compares what both have"
    )


def _named(word: str, ids: Iterable[str]) -> Iterable[str]:
    known = sorted(ids)
    if known:
        more = f" and {len(known) - _NAMED_CASES} more" if len(known) > _NAMED_CASES else ""
        yield f"{word}: {', '.join(known[:_NAMED_CASES])}{more}"
