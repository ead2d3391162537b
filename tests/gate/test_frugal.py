"""A group that keeps nothing has the expected values of one that keeps everything."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mtp_conformance.adapters.builtin import BuiltinSession, FolderRuntime
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.exactness import require_equal
from mtp_conformance.gate.frugal import FrugalGroup
from mtp_conformance.group import Group, GroupKey
from mtp_conformance.oracles import NotDeterministic
from mtp_conformance.protocol import Options, Outcome
from tests.gate.conftest import SHORT

KEY = GroupKey("folder", "float32", len(SHORT))


@pytest.fixture
def groups(folders: Callable[[str], Path]) -> tuple[FrugalGroup, Group]:
    """Return both kinds of group on a folder."""
    runtime, folder = CheckedRuntime(FolderRuntime()), folders("qwen3_next")
    kinds = (FrugalGroup, Group)
    return tuple(kind(runtime, folder, KEY, SHORT) for kind in kinds)  # pyright: ignore


def test_k0(groups: tuple[FrugalGroup, Group]) -> None:
    """Tokens, logits and states of K=0, asked for forwards and backwards."""
    frugal, keeping = groups
    assert frugal.stream(5) == keeping.stream(5)
    for n in (3, 1, 4, 0, 4):
        what = f"K=0 after {n} rounds"
        require_equal(frugal.plain_state(n), keeping.plain_state(n), what=what)
        pair = ({"logits": group.plain_logits(n)} for group in groups)
        require_equal(*pair, what=what)


def test_other_ways(groups: tuple[FrugalGroup, Group]) -> None:
    """States of never-rejected rounds, of direct passes, and after a round with a reject."""
    frugal, keeping = groups
    given = [keeping.drafts(1, 2, 2), keeping.drafts(4, 1, 1)]
    state = frugal.never_rejected_state(given)
    require_equal(state, keeping.never_rejected_state(given), what="never rejected")
    require_equal(frugal.direct_state(2), keeping.direct_state(2), what="direct")
    rewound = (group.rewound("", 3, 1)[0].state() for group in groups)
    require_equal(*rewound, what="rewound")


def test_after(groups: tuple[FrugalGroup, Group]) -> None:
    """The group behind some tokens is frugal too."""
    frugal, keeping = (group.after(2) for group in groups)
    assert isinstance(frugal, FrugalGroup)
    assert (frugal.prompt, frugal.stream(3)) == (keeping.prompt, keeping.stream(3))


def test_k0_that_changes(
    groups: tuple[FrugalGroup, Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A K=0 run that emits another token than before is noticed where it is run again."""
    frugal, round_ = groups[0], BuiltinSession.round
    frugal.stream(4)

    def other(session: BuiltinSession, drafts: Sequence[int]) -> Outcome:
        outcome = round_(session, drafts)
        assert outcome.logits is not None
        return Outcome(0, ((outcome.tokens[0] + 1) % 256,), -outcome.logits)

    monkeypatch.setattr(BuiltinSession, "round", other)
    monkeypatch.setattr(CheckedRuntime, "offers", _without_logits)
    with pytest.raises(NotDeterministic, match=r"K=0 run again emits \d+ as token 1, where it"):
        frugal.plain_state(1)


def _without_logits(runtime: CheckedRuntime, *capabilities: object) -> bool:
    """So that nobody holds an emitted token against logits that another one has."""
    del runtime
    return all(str(capability) != "Capability.LOGITS" for capability in capabilities)


def test_row_exact(folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row-exact runtime every session is opened and forked so."""
    seen: list[bool] = []

    def noted(session: BuiltinSession, *parts: object) -> None:
        seen.extend(part.row_exact for part in parts if isinstance(part, Options))
        start(session, *parts)  # pyright: ignore

    start = BuiltinSession.__init__
    monkeypatch.setattr(BuiltinSession, "__init__", noted)
    runtime = CheckedRuntime(FolderRuntime(), row_exact=True)
    group = FrugalGroup(runtime, folders("qwen3_next"), KEY, SHORT)
    group.rewound("", 1, 0)
    group.never_rejected_state([group.drafts(1, 1, 1)])
    group.direct_state(1)
    assert len(seen) > 4 and all(seen)
