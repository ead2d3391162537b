"""Path-gap: what one path of a round does, another does not."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from typing import Any

import pytest

from mtp_decoder.drafting import Drafter
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.session import Session
from mtp_decoder.window import Window
from tests.faults.editing import edit
from tests.faults.fault import HEAD, Claim, Family, Fault, head_rows, one_round, places, shot

RECURRENT = places("layers", range(5), "conv", "recurrent", "ngram", "ple_conv")


def _own_drafts_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Rounds of the head's own drafts do not put the recurrence back; injected ones do."""
    own: list[bool] = [False]
    draft, inject, cut = Session.draft, Session.inject, Window.rewind

    def drafting(self: Any, num_draft_tokens: int) -> list[int]:
        own[0] = True
        return draft(self, num_draft_tokens)

    def injecting(self: Any, drafts: Any) -> list[int]:
        own[0] = False
        return inject(self, drafts)

    def rewinding(self: Any, keep: int) -> None:
        undos = self._undos
        if own[0]:
            self._undos = [u for u in undos if not isinstance(u, RecurrentUndo)]
        cut(self, keep)
        self._undos = undos

    patch.setattr(Session, "draft", drafting)
    patch.setattr(Session, "inject", injecting)
    patch.setattr(Window, "rewind", rewinding)


def _rebuild(patch: pytest.MonkeyPatch, *, only_when: str) -> None:
    """A rewind decodes the kept tokens again in place of what its strategy does."""
    edit(
        patch,
        Window.rewind,
        (
            "replay = self._strategy is Rewind.REPLAY",
            f"replay = self._strategy is Rewind.REPLAY or {only_when}",
        ),
    )


FAULTS = (
    Fault(
        id="own-drafts-are-not-committed",
        family=Family.PATH_GAP,
        kind="R",
        ids=("R12",),
        invariant="I1",
        claim=Claim.STATE,
        shots=(
            shot("rewind.state.own-drafts", "gdn-agree", k=2),
            shot("stream.greedy.own-drafts", "gdn-agree", k=2),
        ),
        apply=_own_drafts_not_committed,
        breaks=RECURRENT,
    ),
    Fault(
        id="full-reject-rebuilds",
        family=Family.PATH_GAP,
        kind="R",
        ids=("R4",),
        invariant="I13",
        claim=Claim.ANY,
        shots=(
            shot("rewind.experts.not-called", "gdn-moe", k=1),
            shot("rewind.experts.not-called", "flash-next", "rerun", k=3),
        ),
        apply=lambda patch: _rebuild(patch, only_when="keep == 1"),
    ),
    Fault(
        id="every-reject-rebuilds",
        family=Family.PATH_GAP,
        kind="R",
        ids=("R19",),
        invariant="I13",
        claim=Claim.ANY,
        shots=(
            shot("rewind.experts.not-called", "gdn-moe", k=1),
            shot("rewind.experts.not-called", "gdn-moe+mlx-lm", "rerun", k=3),
        ),
        apply=lambda patch: _rebuild(patch, only_when="True"),
    ),
    Fault(
        id="cut-leaves-the-head-ahead",
        family=Family.PATH_GAP,
        kind="H",
        ids=("H11",),
        invariant="I5",
        claim=Claim.HEAD,
        shots=(shot("emit.stop.every-index", "attn", k=3),),
        apply=lambda patch: edit(
            patch,
            Session.rewind,
            (
                "if self._drafter is not None:",
                "if self._drafter is not None and not self._settled:",
            ),
        ),
        breaks=HEAD | places("head", ("frontier",), "hidden"),
    ),
    Fault(
        id="full-accept-leaves-the-last-draft-out",
        family=Family.PATH_GAP,
        kind="H",
        ids=("H3", "K2"),
        invariant="I5",
        claim=Claim.HEAD,
        shots=(shot("head.rows.one-a-pair", "window"),),
        apply=lambda patch: edit(
            patch,
            Drafter._settle_on_drafts,
            ("if self.length == self._checkpoint + accepted:", "if not self._checkpoint:"),
        ),
        breaks=HEAD,
    ),
    Fault(
        id="target-rows-leave-full-accepts-out",
        family=Family.PATH_GAP,
        kind="H",
        ids=("H3",),
        invariant="I5",
        claim=Claim.HEAD,
        shots=(head_rows("window"), head_rows("flash-next")),
        apply=lambda patch: edit(
            patch, Drafter._settle_on_target, ("if accepted:", "if 0 < accepted < len(drafts):")
        ),
        breaks=HEAD,
    ),
    Fault(
        id="count-as-a-list",
        family=Family.PATH_GAP,
        kind="B",
        ids=("B3",),
        invariant="I8",
        claim=Claim.ANY,
        shots=(one_round("gdn", k=1, accepted=0),),
        apply=lambda patch: edit(
            patch,
            Window.rewind,
            (
                "undo.rewind(0 if replay else keep)",
                'undo.rewind(0 if replay else [keep] if hasattr(undo, "before") else keep)',
            ),
        ),
    ),
)
