"""What a wrong state is, where it is the right state of other tokens.

The smallest failing rounds are run again, and every array that is wrong is compared with what it
is after each number of positions of the last verify pass, rejected ones included, and after each
earlier token. A match names the mistake: not rewound, restored too far, one position off, an
older record. Without a match the array itself may tell: empty, zero, of another type, rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import mlx.core as mx

from mtp_conformance.case import Cell
from mtp_conformance.exactness import DifferenceKind, StateDiffers, bits_equal, split_name
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import EOS, Group, State, target_arrays
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Capability, Options
from mtp_conformance.report import Minimal
from mtp_conformance.verdict import Inconclusive, Unsupported

_WORDS = {
    "recurrent": "recurrent state",
    "conv": "convolution window",
    "ngram": "n-gram history",
    "ple_conv": "PLE convolution window",
    "pooled": "pooled index keys",
    "open_block": "raw index keys of the open block",
    "index_keys": "raw index keys",
    "index_offset": "index offset",
    "hidden": "hidden state",
    "keys_scales": "scales of the keys",
    "keys_biases": "biases of the keys",
    "values_scales": "scales of the values",
    "values_biases": "biases of the values",
}
_PLURAL = frozenset(
    f"{rows}{part}" for rows in ("keys", "values") for part in ("", "_scales", "_biases")
) | {"index_keys", "open_block", "pooled"}


class _Speech(NamedTuple):
    """The words that agree with what a sentence is about."""

    is_: str
    has: str
    was: str
    it: str
    one: str
    looks: str
    matches: str
    so_does_that: str


_SINGULAR = _Speech("is", "has", "was", "it", "one", "looks", "matches", "so does that")
_OF_SEVERAL = _Speech("are", "have", "were", "they", "ones", "look", "match", "so do those")
_NARROW = (mx.bfloat16, mx.float16)
_FEW_ULP = 64
_FRONTIER = "the frontier"
_TELLING = (4, 1)
"""K and accepted: every position of such a round has a name of its own."""
Rounds = tuple[tuple[int, int], ...]
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True)
class Rerun:
    """The smallest failing rounds, once more.

    Attributes:
        found: the state after them.
        due: the state of the same tokens without rejected drafts.
        after: states after so many positions of the last verify pass, rejected ones too.
        earlier: states so many tokens before the frontier, all of them committed.
        k: drafts of the last round.
        kept: positions of it that stand, a+1.
        rounds: how many rounds it takes.
    """

    found: State
    due: State
    after: tuple[State, ...]
    earlier: Mapping[int, State]
    k: int
    kept: int
    rounds: int


def diagnose(oracles: Oracles, cell: Cell, minimal: Minimal) -> str | None:
    """Say what the first wrong array of the smallest failing rounds is.

    Returns:
        None if the rounds leave no wrong array, or the runtime shows none.
    """
    shows = oracles.runtime.offers(Capability.STATE, Capability.DRAFTS)
    if not minimal.rounds or not shows:
        return None
    for rounds in _telling(oracles, minimal):
        try:
            said = told(_again(oracles, cell, minimal.prompt_length, rounds))
        except (RuntimeFailure, Unsupported, Inconclusive, AssertionError):
            continue  # the failure itself has been told
        if said is not None:
            return said
    return None


def _telling(oracles: Oracles, minimal: Minimal) -> Iterator[Rounds]:
    """Rounds that tell most: in a short one the window's end is a position off, too."""
    k = min(_TELLING[0], oracles.description.max_draft_tokens)
    if len(minimal.rounds) == 1 and minimal.k < k:
        accepted = minimal.rounds[0][1]
        yield ((k, k if accepted == minimal.k else min(accepted, _TELLING[1])),)
        yield ((k, min(k, _TELLING[1])),)
    yield minimal.rounds


def told(rerun: Rerun) -> str | None:
    """Say in a sentence what the first wrong array of a state is; None if none is wrong."""
    wrong = list(_wrong(rerun))
    if not wrong:
        return None
    name = wrong[0]
    speech = _speech(name)
    said = _placed(rerun, name) or _odd(rerun, name)
    said = said or f"{speech.matches} the state of no other token count"
    others = [other for other in wrong[1:] if split_name(other)[1] == split_name(name)[1]]
    also = f" ({speech.so_does_that} of {_listed(others)})" if others else ""
    latch = ""
    if rerun.rounds > 1:
        latch = "; one round does not show it, so something of the round before is still in use"
    return f"{_spoken(name)} {said.replace(_FRONTIER, _frontier(rerun, name))}{also}{latch}"


def _frontier(rerun: Rerun, name: str) -> str:
    """What an array is measured by: keys and values, if they are where they should be."""
    offsets = [n for n in rerun.due if n.startswith("layers.") and n.endswith(".offset")]
    right = offsets and all(_same(rerun.due[n], rerun.found.get(n)) for n in offsets)
    rows = split_name(name)[1] in ("keys", "values", "offset")
    return "the K/V frontier" if right and not rows else _FRONTIER


def beyond(error: StateDiffers) -> str | None:
    """What a wrong offset says by itself: how far the caches are from where they should end."""
    difference = error.difference
    if (
        error.component != "offset"
        or difference is None
        or difference.kind is not DifferenceKind.BITS
    ):
        return None
    held, due = cast("int", difference.actual), cast("int", difference.expected)
    side = "past" if held > due else "short of"
    return f"{_layer(error.layer)} holds {held} tokens, {_count(abs(held - due))} {side} {due}"


def _again(oracles: Oracles, cell: Cell, prompt_length: int, rounds: Rounds) -> Rerun:
    deepest = max(k for k, _ in rounds)
    extra = tuple(axis for axis in cell.extra if axis[0] == "prompt")
    small = replace(cell, prompt_length=prompt_length, k=deepest, accepted=None, extra=extra)
    group = oracles.group(small)
    session, emitted, given = group.prefilled(oracles.options(small)), 1, list[list[int]]()
    drafts, before = list[int](), 1
    for k, accepted in rounds:
        drafts, before = group.drafts(emitted, k, accepted), emitted
        outcome = session.round(drafts)
        assert outcome.accepted == accepted, "the states would be of other tokens"
        given.append(drafts[:accepted])
        emitted += accepted + 1
    k, accepted = rounds[-1]
    earlier = {emitted - 1 - n: group.plain_state(n) for n in range(emitted - 1)}
    return Rerun(
        found=session.state(),
        due={**group.never_rejected_state(given), **target_arrays(group.plain_state(emitted - 1))},
        after=tuple(_passes(group, before, drafts)),
        earlier=earlier,
        k=k,
        kept=accepted + 1,
        rounds=len(rounds),
    )


def _passes(group: Group, emitted: int, drafts: list[int]) -> Iterator[State]:
    """States after 0, 1, .. positions of a verify pass, each of a prefill that saw no more."""
    stream = group.stream(emitted)
    before, window = [*group.prompt, *stream[:-1]], [stream[-1], *drafts]
    for seen in range(len(window) + 1):
        session = group.open(Options())
        session.prefill([*before, *window[:seen]])
        yield session.state()


def _wrong(rerun: Rerun) -> Iterator[str]:
    for name, due in rerun.due.items():
        found = rerun.found.get(name)
        right = (due, rerun.after[rerun.kept].get(name))
        if found is None or not any(_same(found, array) for array in right):
            yield name
    yield from (name for name in rerun.found if name not in rerun.due)


def _placed(rerun: Rerun, name: str) -> str | None:
    """Where an array is, if it is the right one of another place."""
    found = rerun.found.get(name)
    if found is None:
        return None
    ends = [i for i, state in enumerate(rerun.after) if _same(found, state.get(name))]
    if ends:
        last = rerun.k if name.startswith("head.") else rerun.k + 1  # the last draft has no row
        nearest = min(ends, key=lambda i: (abs(i - rerun.kept), i))
        return _at(rerun, nearest, last, _speech(name))
    for back, state in rerun.earlier.items():
        if _same(found, state.get(name)):
            speech = _speech(name)
            return (
                f"{speech.is_} the {speech.one} of {_count(back)} before the frontier: an older "
                "record was used"
            )
    return None


def _at(rerun: Rerun, position: int, last: int, speech: _Speech) -> str:
    off = position - rerun.kept
    is_, _, was, it, *_ = speech
    if position == last and off > 1:
        return (
            f"{is_} {_count(off)} ahead of the frontier, at the end of the verify window: "
            f"{it} {was} not rewound"
        )
    if position == 0:
        return (
            f"{is_} {_count(-off)} behind the frontier, where {it} {was} before the round: "
            f"{it} {was} put back and the accepted tokens were not run again"
        )
    side = "ahead of" if off > 0 else "behind"
    kept = "a" if off == -1 else f"a{off + 1:+d}"
    hint = f" (the end of the verify window: perhaps {it} {was} not rewound)"
    return (
        f"{is_} {_count(abs(off))} {side} the frontier; {speech.looks} like a rewind to {kept} "
        "positions" + hint * (position == last)
    )


def _odd(rerun: Rerun, name: str) -> str | None:
    """What an array looks like that is the right one of no place."""
    found, due = rerun.found.get(name), rerun.due.get(name)
    is_, _, _, it, *_ = _speech(name)
    if found is None:
        return f"{is_} missing: reset to empty, not rewound"
    if due is None:
        return f"{is_} there although {it} {is_} due to be empty"
    if found.dtype != due.dtype:
        return f"{is_} {_type(found)}, {_type(due)} is due: stored in another type on the way"
    if found.shape != due.shape:
        return _by_size(name, found, due)
    return _by_values(name, found, due)


def _by_values(name: str, found: mx.array, due: mx.array) -> str | None:
    if not mx.abs(found.astype(mx.float32)).max().item():
        return f"{_speech(name).is_} all zeros: wiped, not rewound"
    if name.endswith(".ngram") and (found == EOS).all().item():
        return "is all end-of-text: reset, not rewound"
    return _rounded(found, due, _speech(name))


def _by_size(name: str, found: mx.array, due: mx.array) -> str | None:
    axis = 1 if name.endswith(".pooled") else 2
    if found.ndim != due.ndim or found.ndim <= axis:
        return None
    more = found.shape[axis] - due.shape[axis]
    what = "block" if axis == 1 else "row"
    count = f"{_NUMBERS[min(abs(more), 6)]} {what}{'s' * (abs(more) > 1)}"
    return f"{_speech(name).has} {count} too {'many' if more > 0 else 'few'}"


def _rounded(found: mx.array, due: mx.array, speech: _Speech) -> str | None:
    if not mx.issubdtype(due.dtype, mx.floating):
        return None
    is_, _, _, it, one, *_ = speech
    for dtype in _NARROW:
        if due.dtype == mx.float32 and _same(found, due.astype(dtype).astype(due.dtype)):
            name = str(dtype).removeprefix("mlx.core.")
            return f"{is_} the right {one} rounded to {name}: {it} went through a narrower type"
    difference = bits_equal(found, due)
    if difference is not None and difference.ulp is not None and difference.ulp <= _FEW_ULP:
        return f"{is_} {difference.ulp} ULP off: the right tokens, by other arithmetic"
    return None


def _same(one: mx.array, other: mx.array | None) -> bool:
    return other is not None and bits_equal(one, other) is None


def _speech(name: str) -> _Speech:
    return _OF_SEVERAL if split_name(name)[1] in _PLURAL else _SINGULAR


def _spoken(name: str) -> str:
    layer, component = split_name(name)
    return f"{_layer(layer)} {_WORDS.get(component, component)}"


def _layer(layer: str) -> str:
    """`layers.1` as layer 1, `head.0` as head layer 0."""
    room, _, index = layer.partition(".")
    if room == "head":
        return "head" if index == "frontier" else f"head layer {index}"
    return f"layer {index}"


def _listed(names: list[str]) -> str:
    return ", ".join(_layer(split_name(name)[0]) for name in names[:6])


def _count(tokens: int) -> str:
    word = _NUMBERS[tokens] if tokens < len(_NUMBERS) else str(tokens)
    return f"{word} token{'s' * (tokens != 1)}"


def _type(array: mx.array) -> str:
    return str(array.dtype).removeprefix("mlx.core.")
