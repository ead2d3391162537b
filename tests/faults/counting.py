"""Counter: what is counted, timed and switched on is not what happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from mtp_decoder import generate
from mtp_decoder.counters import Counters
from tests.faults.editing import edit
from tests.faults.fault import Claim, Family, Fault, Shot, shot


def _uncounted(patch: pytest.MonkeyPatch) -> None:
    """Drafts behind a stop count as accepted."""
    patch.setattr(Counters, "uncount_accepted", lambda *_: None)


def _bonus_counted(patch: pytest.MonkeyPatch) -> None:
    """The bonus of a full accept counts as an accepted draft."""
    count = Counters.count_round

    def faulty(self: Any, drafted: int, accepted: int) -> None:
        count(self, drafted + (drafted == accepted), accepted + (drafted == accepted))

    patch.setattr(Counters, "count_round", faulty)


def _always_drafts(patch: pytest.MonkeyPatch) -> None:
    """With K=0 a draft is made and verified all the same."""
    edit(
        patch,
        generate.emit,
        (
            "k = _depth(policy, min(num_draft_tokens, budget))",
            "k = max(1, min(num_draft_tokens, budget))",
        ),
    )


def _never_drafts(patch: pytest.MonkeyPatch) -> None:
    """Drafting is off, whatever K is asked for."""
    edit(patch, generate.emit, ("k = _depth(policy, min(num_draft_tokens, budget))", "k = 0"))


def _decode_as_prefill(patch: pytest.MonkeyPatch) -> None:
    """Time of every phase goes to the prefill."""
    phase = Counters.phase
    patch.setattr(
        Counters,
        "phase",
        lambda self, name, **named: phase(self, "prefill" if name else name, **named),
    )


def _prefill_untimed(patch: pytest.MonkeyPatch) -> None:
    """The prompt is read before the clock starts."""
    phase = Counters.phase
    patch.setattr(
        Counters,
        "phase",
        lambda self, name, **named: (
            nullcontext() if name == "prefill" else phase(self, name, **named)
        ),
    )


def _verify_left_to_accept(patch: pytest.MonkeyPatch) -> None:
    """A rewind's time goes to the draft that comes next."""

    @contextmanager
    def faulty(self: Any, name: str, **named: Any) -> Any:
        with phase(self, "draft" if name == "rewind" else name, **named):
            yield

    phase = Counters.phase
    patch.setattr(Counters, "phase", faulty)


def _fault(
    name: str,
    ids: tuple[str, ...],
    invariant: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    *shots: Shot,
    may_void: bool = False,
) -> Fault:
    return Fault(
        id=name,
        family=Family.COUNTER,
        kind=ids[0][0],
        ids=ids,
        invariant=invariant,
        claim=Claim.ANY,
        shots=shots,
        apply=apply,
        may_void=may_void,
    )


FAULTS = (
    _fault(
        "drafts-behind-a-stop-count",
        ("C4",),
        "I6",
        _uncounted,
        shot("emit.counters.as-emitted", "attn", k=3),
    ),
    _fault(
        "bonus-counts-as-accepted",
        ("T1",),
        "I6",
        _bonus_counted,
        shot("emit.counters.as-emitted", "attn", k=3),
    ),
    _fault(
        "drafts-at-k-0",
        ("C6",),
        "I13",
        _always_drafts,
        shot("sample.stream.steered", "attn", k=4),
    ),
    _fault(
        "drafting-never-engages",
        ("C11",),
        "I13",
        _never_drafts,
        shot("stream.greedy.guessed-drafts", "attn", k=2),
        shot("stream.greedy.unlikely-drafts", "attn", k=3),
        may_void=True,
    ),
    _fault(
        "decoding-timed-as-prefill",
        ("C2",),
        "I12",
        _decode_as_prefill,
        shot("timing.phases.wall-time", "attn", k=2),
    ),
    _fault(
        "prefill-before-the-clock",
        ("C3",),
        "I12",
        _prefill_untimed,
        shot("timing.phases.wall-time", "attn", k=2),
    ),
    _fault(
        "rewind-timed-as-draft",
        ("C1",),
        "I12",
        _verify_left_to_accept,
        shot("timing.phases.wall-time", "attn", "replay", k=2),
    ),
)
