"""Checks of an adapter before anything is scored, with what to do about each that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import mlx.core as mx

from mtp_conformance.case import Cell
from mtp_conformance.exactness import bits_equal, compare_states
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import EOS, Group
from mtp_conformance.growth import growth_faults
from mtp_conformance.oracles import Oracles, key_of
from mtp_conformance.protocol import Capability, Options
from mtp_conformance.tokens import first_difference
from mtp_conformance.verdict import Unsupported


class Status(str, Enum):
    """Outcome of one check."""

    OK = "ok"
    WRONG = "wrong"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True)
class Check:
    """One check's outcome.

    Attributes:
        name: what was checked.
        status: outcome.
        advice: what was seen and what to do; empty if all is well.
    """

    name: str
    status: Status
    advice: str = ""


class _Wrong(Exception):
    """A check failed; the message is the advice."""


def smoke(oracles: Oracles, model: str, dtype: str = "float32") -> Iterator[Check]:
    """Run every check on one model, yielding outcomes as they come.

    A check whose capability is not offered is listed as such. Where one fails that the others
    rely on (opening, plain decoding, independent forks), nothing more is checked.
    """
    cell = Cell(model, dtype=dtype, prompt_length=6)
    group: list[Group] = []
    first = _check("open and prefill", lambda: group.append(oracles.fresh_group(key_of(cell))))
    yield first
    if first.status is not Status.OK:
        return
    for name, needs, run in _CHECKS:
        if not oracles.runtime.offers(*needs):
            yield Check(name, Status.NOT_OFFERED, f"add {', '.join(n.value for n in needs)}")
            continue
        check = _check(name, lambda run=run: run(group[0], oracles))
        yield check
        if name in _RELIED_ON and check.status is not Status.OK:
            return


_RELIED_ON = ("something is offered", "plain decoding repeats", "a fork is independent")


def _check(name: str, run: Callable[[], object]) -> Check:
    try:
        run()
    except (_Wrong, RuntimeFailure, Unsupported) as error:
        return Check(name, Status.WRONG, str(error))
    return Check(name, Status.OK)


def _something_is_offered(group: Group, _: Oracles) -> None:
    if not group.runtime.description.capabilities:
        raise _Wrong("no capability is offered, so every case is unsupported; start with `stream`")


def _plain_decoding_repeats(group: Group, _: Oracles) -> None:
    again = Group(group.runtime, group.checkpoint, group.key, group.prompt)
    advice = "use greedy decoding and start every session from an empty cache"
    index = first_difference(group.stream(6), again.stream(6))
    if index is not None:
        told = f"token {index}: {group.stream(6)}, {again.stream(6)}"
        raise _Wrong(f"K=0 twice differs at {told}; {advice}")
    if not group.runtime.offers(Capability.LOGITS, Capability.DRAFTS):
        return
    for n in range(6):
        if bits_equal(group.plain_logits(n), again.plain_logits(n)) is not None:
            raise _Wrong(f"K=0 twice gives two rows of logits for token {n}; {advice}")


def _drafts_are_injected(group: Group, _: Oracles) -> None:
    k = min(2, group.runtime.description.max_draft_tokens)
    right = group.prefilled(Options()).round(group.drafts(1, k, k))
    wrong = group.prefilled(Options()).round(group.drafts(1, k, 0))
    if right.accepted != k:
        raise _Wrong(
            f"of {k} drafts that K=0 itself emits {right.accepted} were accepted; "
            "round(drafts) must verify the drafts it is given, in one pass, at this K"
        )
    if wrong.accepted:
        raise _Wrong(f"of {k} wrong drafts {wrong.accepted} were accepted")


def _generate_drafts(group: Group, _: Oracles) -> None:
    k = min(2, group.runtime.description.max_draft_tokens)
    made = group.open(Options()).generate(group.prompt, num_draft_tokens=k, max_tokens=8)
    if not made.drafted:
        raise _Wrong(
            f"generate with num_draft_tokens={k} drafted nothing: turn off whatever decides not to "
            "draft (adaptive depth, thresholds), or the stream proves nothing"
        )


def _guess_is_used(group: Group, _: Oracles) -> None:
    stream = group.stream(9)
    wrong = [(token + 1) % EOS for token in stream]
    k = min(2, group.runtime.description.max_draft_tokens)
    for guess, said in ((stream, "what K=0 emits"), (wrong, "wrong in every token")):
        made = group.open(Options()).generate(
            group.prompt, num_draft_tokens=k, max_tokens=7, guess=guess
        )
        if (made.accepted > 0) != (guess is stream):
            raise _Wrong(
                f"with a guess that is {said}, {made.accepted} of {made.drafted} drafts were "
                "accepted; guess[i] must be what is drafted for the i-th emitted token"
            )


def _state_is_whole(group: Group, oracles: Oracles) -> None:
    state = group.prefilled(Options()).state()
    due = oracles.expected_state(group, len(group.prompt))
    missing = sorted(set(due) - set(state))
    if missing:
        raise _Wrong(
            f"state lacks {', '.join(missing)}; show every array that a layer keeps between "
            "tokens, named as on the protocol page"
        )
    odd = [f"{n} {state[n].shape}, not {due[n]}" for n in due if state[n].shape != due[n]]
    if odd:
        raise _Wrong(f"after {len(group.prompt)} tokens of prompt: {'; '.join(odd)}")


def _state_moves(group: Group, oracles: Oracles) -> None:
    del oracles
    faults = growth_faults(group.plain_state(0), group.plain_state(1), len(group.prompt) + 1)
    if faults:
        raise _Wrong("; ".join(faults))


def _state_shapes_are_stable(group: Group, _: Oracles) -> None:
    first, second = (group.prefilled(Options()).state() for _ in range(2))
    comparison = compare_states(first, second)
    if comparison.differing:
        raise _Wrong(f"two sessions at one place differ in {', '.join(comparison.differing)}")


def _state_is_a_copy(group: Group, _: Oracles) -> None:
    session = group.prefilled(Options())
    before = session.uncopied_state()
    kept = {name: mx.array(array) for name, array in before.items()}
    mx.eval(list(kept.values()))
    session.round(())
    session.uncopied_state()
    changed = compare_states(before, kept).differing
    if changed:
        raise _Wrong(
            f"arrays handed out earlier changed with a later round ({', '.join(changed)}): state "
            "must return copies (mx.array(x)), not the arrays the cache writes into"
        )


def _fork_is_independent(group: Group, _: Oracles) -> None:
    original = group.prefilled(Options())
    before = original.state()
    original.fork().round(())
    changed = compare_states(original.state(), before).differing
    if changed:
        raise _Wrong(f"advancing a fork changed {', '.join(changed)} of the original")


def _head_is_shown(group: Group, _: Oracles) -> None:
    state = group.prefilled(Options()).state()
    if not any(name.startswith("head.") for name in state):
        raise _Wrong("head-state is offered and state has no array head.I.component")


def _clock_is_monotonic(group: Group, _: Oracles) -> None:
    start, session = time.perf_counter(), group.prefilled(Options())
    first = session.timings()
    session.round(())
    second, wall = session.timings(), time.perf_counter() - start
    backwards = [phase for phase in first if second.get(phase, 0.0) < first[phase]]
    if backwards:
        raise _Wrong(f"seconds of {', '.join(backwards)} went backwards; report running totals")
    spent = sum(second.values()) - sum(first.values())
    if spent <= 0:
        raise _Wrong("a round was charged no time in any phase; report running totals")
    if spent > wall:
        raise _Wrong(f"a round of {wall:.4f} s was charged {spent:.4f} s; phases overlap")


def _cancel_keeps_the_frontier(group: Group, _: Oracles) -> None:
    session = group.prefilled(Options())
    session.cancel()
    token = session.round(()).tokens[0]
    if token != group.stream(2)[1]:
        raise _Wrong(f"after cancel the next token is {token}, not {group.stream(2)[1]}")


_CHECKS: tuple[tuple[str, tuple[Capability, ...], Callable[[Group, Oracles], None]], ...] = (
    ("something is offered", (), _something_is_offered),
    ("plain decoding repeats", (), _plain_decoding_repeats),
    (
        "a fork is independent",
        (Capability.FORK, Capability.STATE, Capability.DRAFTS),
        _fork_is_independent,
    ),
    ("generate drafts", (Capability.STREAM,), _generate_drafts),
    ("state is whole", (Capability.STATE,), _state_is_whole),
    ("state moves", (Capability.STATE, Capability.DRAFTS), _state_moves),
    ("state shapes are stable", (Capability.STATE,), _state_shapes_are_stable),
    ("drafts are injected", (Capability.DRAFTS,), _drafts_are_injected),
    ("a guess is used", (Capability.STREAM, Capability.GUESS), _guess_is_used),
    ("state is a copy", (Capability.STATE, Capability.DRAFTS), _state_is_a_copy),
    ("the head is shown", (Capability.HEAD_STATE,), _head_is_shown),
    ("the clock is monotonic", (Capability.TIMING, Capability.DRAFTS), _clock_is_monotonic),
    (
        "cancel keeps the frontier",
        (Capability.CANCEL, Capability.DRAFTS),
        _cancel_keeps_the_frontier,
    ),
)
