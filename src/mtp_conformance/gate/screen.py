"""What a gate found, in one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from mtp_conformance.gate.answer import Answer, Outcome, place_of
from mtp_conformance.gate.checks import CONTROL, INJECTED, ONE_ROUND, OWN, PROBE, ROUNDS
from mtp_conformance.gate.running import Memory
from mtp_conformance.report import Header, Result
from mtp_conformance.verdict import Verdict

_LISTED = 6
_TIES = 5
_MIB = 2**20
_STATES = (ONE_ROUND.case.id, ROUNDS.case.id)


def render(
    header: Header, results: Sequence[Result], outcome: Outcome, memory: Memory | None
) -> Iterator[str]:
    """The lines of the screen."""
    yield from _named(_about(header))
    yield from _named({"control": _control(results), "probe": _probe(header, results)})
    yield ""
    yield from _ladder(results)
    yield ""
    if memory is not None:
        yield from _named({"memory": _memory(memory, header)})
    yield from _near_ties(results)
    yield from _unsupported(results)
    yield f"{outcome.answer.value.upper()}: {outcome.because}"
    yield from _again(results, outcome)


def where(report: Path, pages: Iterable[Path]) -> str:
    """Where the report lies, and what is beside it."""
    beside = ", ".join(page.name for page in pages)
    return f"report: {report}" + (f" (beside it: {beside})" if beside else "")


def _named(facts: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{name:<10} {text}" for name, text in facts.items() if text)


def _about(header: Header) -> dict[str, str]:
    runtime = header.runtime
    facts = cast("Mapping[str, str]", runtime["checkpoint"])

    def told(*topics: str) -> str:
        return ", ".join(facts[topic] for topic in topics if topic in facts)

    versions = [f"mlx {header.mlx}"] + ([f"mlx-lm {header.mlx_lm}"] if header.mlx_lm else [])
    kind = "row by row" if runtime.get("row_exact") else "as it verifies by itself"
    return {
        "model": told("name", "family", "classes", "dtype"),
        "weights": told("files", "quantised", "norms"),
        "head": told("head"),
        "runtime": f"{runtime.get('name')}, {kind}; {', '.join(versions)}; {header.device}",
    }


def _of(results: Sequence[Result], *cases: str, k: object = None) -> list[Result]:
    return [r for r in results if r.case in cases and (k is None or r.params.get("k") == k)]


def _passed(results: Sequence[Result]) -> str:
    """`passed/all`, or why there is nothing to count."""
    counted = [r for r in results if r.verdict is not Verdict.UNSUPPORTED]
    if not counted:
        return "not shown" if results else "-"
    return f"{sum(r.verdict is Verdict.PASS for r in counted)}/{len(counted)}"


def _control(results: Sequence[Result]) -> str:
    found = _of(results, CONTROL.case.id)
    return f"K=0 twice gives the same bits after {_passed(found)} prompts"


def _probe(header: Header, results: Sequence[Result]) -> str:
    probe = header.probe or {}
    device = "every operation" if probe.get("row_exact") else "not every operation"
    found = _of(results, PROBE.case.id)
    exact = [str(r.params["k"]) for r in found if r.verdict is Verdict.PASS]
    other = [str(r.params["k"]) for r in found if r.verdict is not Verdict.PASS]
    said = [f"{device} of this device is row-exact"]
    if exact:
        said.append(f"a verify pass of this model is at K={', '.join(exact)}")
    if other:
        said.append(f"not known to be, or not, at K={', '.join(other)}")
    return "; ".join(said)


def _ladder(results: Sequence[Result]) -> Iterator[str]:
    """By K: the claims that hold, and what the model's own drafts were worth."""
    ks = sorted({int(k) for r in results if (k := r.params.get("k")) is not None})
    yield f"{'K':>3}  {'states':>9}  {'injected drafts':>15}  {'own drafts':>10}  accepted"
    for k in ks:
        own = _of(results, OWN.case.id, k=k)
        columns = (
            _passed(_of(results, *_STATES, k=k)),
            _passed(_of(results, INJECTED.case.id, k=k)),
            _passed(own),
        )
        states, injected, streams = columns
        yield f"{k:>3}  {states:>9}  {injected:>15}  {streams:>10}  {_worth(own)}"


def _worth(results: Sequence[Result]) -> str:
    drafted, accepted = (sum(r.witness.get(n, 0) for r in results) for n in ("drafted", "accepted"))
    return f"{accepted} of {drafted} ({accepted / drafted:.0%})" if drafted else "-"


def _memory(memory: Memory, header: Header) -> str:
    beside = memory.peak - memory.loaded
    where = "in this process" if header.runtime.get("in_process") else "in the harness alone"
    return (
        f"peak {_size(memory.peak)} {where}: {_size(memory.loaded)} loaded, {_size(beside)} beside "
        f"it; one session's state is {_size(memory.state)}"
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / _MIB:.1f} MiB"


def _near_ties(results: Sequence[Result]) -> Iterator[str]:
    """Every place once: streams of several K leave K=0's at the same one."""
    places: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        if result.verdict is Verdict.NEAR_TIE:
            places.setdefault(place_of(result), []).append(result)
    for (prompt, _), found in list(places.items())[:_TIES]:
        ks = ", ".join(str(k) for k in sorted({int(r.params["k"]) for r in found}))
        yield f"near-tie   K={ks} after {prompt}: {found[0].reason}"
    if len(places) > _TIES:
        yield f"           and {len(places) - _TIES} more places, in the report"


def _unsupported(results: Sequence[Result]) -> Iterator[str]:
    reasons = dict.fromkeys(
        r.reason for r in results if r.verdict is Verdict.UNSUPPORTED and r.reason
    )
    yield from (f"not shown  {reason}" for reason in list(reasons)[:_LISTED])


def _again(results: Sequence[Result], outcome: Outcome) -> Iterator[str]:
    """What runs the first failure again."""
    if outcome.answer is not Answer.BROKEN:
        return
    bad = [r for r in results if r.verdict in (Verdict.FAIL, Verdict.ERROR) and r.failure]
    told = sorted(bad, key=lambda r: r.failure is None or r.failure.layer is None)
    yield from (f"  {r.failure.command}" for r in told[:1] if r.failure is not None)
