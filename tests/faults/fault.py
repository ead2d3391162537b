"""What a seeded fault is, and the words its families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import pytest

from mtp_conformance import Cell


class Family(str, Enum):
    """How a fault is made: the mutant families of the public faults."""

    SKIP_RESTORE = "skip-restore"
    BOUNDARY_SHIFT = "boundary-shift"
    LATCH = "latch"
    STALE_KEY = "stale-key"
    CAP = "cap"
    PATH_GAP = "path-gap"
    SLOT_ORIGIN = "slot-origin"
    ALIAS = "alias"
    PUBLISH_FRONTIER = "publish-frontier"
    ZERO_NOT_REMOVE = "zero-not-remove"
    EDGE_WRITE = "edge-write"
    EMIT_RULE = "emit-rule"
    ACCEPT_RULE = "accept-rule"
    NUMERIC_ROUTE = "numeric-route"
    LAZY_DEBT = "lazy-debt"
    COUNTER = "counter"


class Claim(str, Enum):
    """What has to notice a fault: tokens alone do not count for a state, nor a state for a head."""

    STATE = "state"  # a state case, by layer and component
    HEAD = "head"  # a case of the head, or a state case that names a part of the head
    ANY = "any"  # whatever fails: tokens, counts, times


Place = tuple[str, str]
"""Layer and component, as a failure names them: ("layers.1", "recurrent")."""


@dataclass(frozen=True)
class Shot:
    """A case on a cell."""

    case: str
    cell: Cell

    @property
    def id(self) -> str:
        """For a person: the case and where it runs."""
        return f"{self.case}[{self.cell.id}]"


@dataclass(frozen=True)
class Fault:
    """One edit to the decoder.

    Attributes:
        id: stable name.
        family: how it is made.
        kind: letter of the public faults it belongs with.
        ids: public faults (`conformance/faults.toml`) it stands for.
        invariant: what it breaks, I1 to I13; `INVARIANTS` says them.
        claim: what has to notice it.
        shots: cells that kill it, cheapest first; all of them do.
        apply: makes the edit, through a monkeypatch that undoes it.
        breaks: where the first difference is reported; empty for a fault that shows in no state.
        before: cells that run first and may pass, for a fault that needs something to have run.
        reloads: the edit is to how a checkpoint is read, so models are read again.
        may_void: a run in which nothing happened (inconclusive) is what gives it away.
    """

    id: str
    family: Family
    kind: str
    ids: tuple[str, ...]
    invariant: str
    claim: Claim
    shots: tuple[Shot, ...]
    apply: Callable[[pytest.MonkeyPatch], None]
    breaks: frozenset[Place] = frozenset()
    before: tuple[Shot, ...] = ()
    reloads: bool = False
    may_void: bool = False

    def __post_init__(self) -> None:
        if not self.shots:
            raise ValueError(f"fault {self.id}: name a cell that kills it")
        if self.invariant not in INVARIANTS:
            raise ValueError(f"fault {self.id}: no invariant {self.invariant}")
        if self.claim is not Claim.ANY and not self.breaks:
            raise ValueError(f"fault {self.id}: say which layer and component it breaks")


INVARIANTS = {
    "I1": "committed state: every array equals that of a run over the accepted prefix",
    "I2": "layer agreement: every layer's cache implies one number of tokens",
    "I3": "dead rows are dead: nothing past the frontier has an effect",
    "I4": "transition closure: the state is right after any two rounds and any change of K",
    "I5": "head alignment: the head's rows and drafts are those of an independent head run",
    "I6": "stream equality with K=0, wherever decoding ends",
    "I10": "followers: processor, mask and random numbers are those of the committed tokens",
    "I11": "law: what is sampled has the target's law",
    "I8": "exception safety: after an exception caches are committed, or refused",
    "I9": "published state has the length of its key and never changes",
    "I12": "laziness: nothing is left unevaluated, memory is flat, timers enclose evaluation",
    "I13": "engagement: runs with drafts draft, accept and reject; runs without do not",
    "N": "numerics: a verify pass has the bits of one-row steps, and runs repeat themselves",
}
"""The invariants faults break, as in the README of the public faults; N is for kind N."""


def places(prefix: str, layers: Iterable[int | str], *components: str) -> frozenset[Place]:
    """Every one of the layers with every one of the components."""
    return frozenset((f"{prefix}.{layer}", c) for layer in layers for c in components)


HEAD = places(
    "head", (0, 1), "keys", "values", "offset", "index_offset", "index_keys", "open_block", "pooled"
)
"""Everything in the caches of a head."""

FRONTIER = places("head", ("frontier",), "hidden")
"""The hidden state handed to the head."""


def one_round(
    model: str,
    strategy: str = "tape",
    k: int = 3,
    accepted: int = 1,
    *,
    prompt: int = 5,
    dtype: str = "float32",
) -> Shot:
    """The state case on one round."""
    cell = Cell(model, strategy, k, accepted, dtype, prompt)
    return Shot("rewind.state.one-round", cell)


def shot(
    case: str,
    model: str,
    strategy: str = "tape",
    k: int | None = None,
    *,
    accepted: int | None = None,
    prompt: int = 5,
    dtype: str = "float32",
    extra: tuple[tuple[str, str | int], ...] = (),
) -> Shot:
    """Any case on a cell."""
    return Shot(case, Cell(model, strategy, k, accepted, dtype, prompt, extra))


def pairs(model: str, strategy: str = "tape", k: int = 2) -> Shot:
    """The case of every ordered pair of outcomes."""
    return shot("rewind.transitions.ordered-pairs", model, strategy, k)


def k_changes(model: str, strategy: str = "tape") -> Shot:
    """The case of rounds of changing depth."""
    return shot("rewind.depth.k-changes", model, strategy)


def head_rows(model: str, strategy: str = "tape") -> Shot:
    """The case of head rows made from the target's residuals."""
    return shot("head.rows.from-target", model, strategy)
