"""The head's own arithmetic: what it is given, what it hands on, how it is loaded."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mtp_decoder.drafting import Drafter
from mtp_decoder.qwen import head as qwen_head
from mtp_decoder.qwen.head import QwenHead
from mtp_decoder.qwen.target import QwenTarget
from mtp_decoder.session import Session
from tests.faults.editing import edit
from tests.faults.fault import HEAD, Claim, Family, Fault, Place, Shot, head_rows, shot
from tests.faults.latch import stale_head

CHAIN = "head.drafts.as-specified"
DRAFTS = frozenset({("", "drafts")})


def _no_prompt(patch: pytest.MonkeyPatch) -> None:
    """The prompt's pairs never enter the head's cache."""
    edit(patch, Drafter.prefill, ("if following.shape[1]:", "if not hidden.size:"))
    _trusting_forks(patch)


def _tail_only(patch: pytest.MonkeyPatch) -> None:
    """Of a prompt read in chunks the pair that spans two chunks is missing."""
    edit(
        patch,
        Drafter.prefill,
        ("earlier = [] if self.hidden is None else [self.hidden]", "earlier = []"),
        ("tokens if self.hidden is not None else tokens[:, 1:]", "tokens[:, 1:]"),
    )
    _trusting_forks(patch)


def _trusting_forks(patch: pytest.MonkeyPatch) -> None:
    """The decoder's own check of the head's length is off, so that cases have to see it."""
    edit(
        patch,
        Session._make_drafter,
        ("drafter.length != max(self._length - 1, 0)", "drafter.length < 0"),
    )


def _chain_before_the_norm(patch: pytest.MonkeyPatch) -> None:
    """Later drafts continue from the hidden state on the other side of the head's norm."""
    edit(
        patch,
        QwenHead.__call__,
        ("return self._target.project(y), y", "return self._target.project(y), x"),
    )


def _chain_on_the_target(patch: pytest.MonkeyPatch) -> None:
    """Every draft is made from the target's hidden state; the chain's own goes unused."""
    edit(
        patch,
        Drafter.draft,
        ("logits, hidden = self._head(", "logits, _ = self._head("),
    )


def _hidden_after_the_norm(patch: pytest.MonkeyPatch) -> None:
    """The head is given the target's hidden state behind the final norm."""
    call = QwenHead.__call__

    def faulty(self: Any, hidden: mx.array, tokens: mx.array, cache: Any) -> Any:
        return call(self, self._target._text.model.norm(hidden), tokens, cache)

    patch.setattr(QwenHead, "__call__", faulty)


def _norms_shifted(change: str, patch: pytest.MonkeyPatch) -> None:
    """Gains of the head's norms are 1 off, or shifted twice."""
    edit(patch, qwen_head.build_head, ("a + 1.0 if a.ndim == 1 else a", change))


def _unnormalised(patch: pytest.MonkeyPatch) -> None:
    """Verify gives the output projection what has not passed the final norm."""
    logits = QwenTarget.logits

    def faulty(self: Any, hidden: mx.array) -> mx.array:
        return self.project(hidden) if hidden.shape[1] > 1 else logits(self, hidden)

    patch.setattr(QwenTarget, "logits", faulty)


def _swapped_join(patch: pytest.MonkeyPatch) -> None:
    """The head's join takes hidden and embedding the other way round."""
    edit(
        patch,
        QwenHead.__call__,
        (
            "[embedded, self.pre_fc_norm_hidden(hidden)]",
            "[self.pre_fc_norm_hidden(hidden), embedded]",
        ),
    )


def _fault(
    name: str,
    family: Family,
    ids: tuple[str, ...],
    apply: Callable[[pytest.MonkeyPatch], None],
    breaks: frozenset[Place],
    *shots: Shot,
    reloads: bool = False,
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind="H",
        ids=ids,
        invariant="I5",
        claim=Claim.HEAD,
        shots=shots,
        apply=apply,
        breaks=breaks,
        reloads=reloads,
    )


ON_CLASSES = (shot(CHAIN, "gdn+mlx-lm", k=4), shot(CHAIN, "gdn-agree+mlx-lm", k=4))
FAULTS = (
    _fault(
        "head-starts-empty",
        Family.PATH_GAP,
        ("H1",),
        _no_prompt,
        HEAD,
        shot("head.prefill.every-pair", "attn", k=2),
        shot("head.rows.one-a-pair", "window"),
    ),
    _fault(
        "head-misses-pairs-between-chunks",
        Family.PATH_GAP,
        ("H1", "H2"),
        _tail_only,
        HEAD,
        shot("head.prefill.every-pair", "attn", k=2),
        shot("head.rows.one-a-pair", "window"),
    ),
    _fault(
        "chain-before-the-norm",
        Family.PATH_GAP,
        ("H7",),
        _chain_before_the_norm,
        DRAFTS,
        shot(CHAIN, "gdn+mlx-lm", k=4),
        shot(CHAIN, "gdn-moe+mlx-lm", k=4),
    ),
    _fault(
        "chain-on-the-target",
        Family.PATH_GAP,
        ("H7",),
        _chain_on_the_target,
        DRAFTS,
        shot(CHAIN, "attn", k=4),
        shot(CHAIN, "flash-next", k=3),
    ),
    _fault(
        "head-given-the-normed-hidden",
        Family.PATH_GAP,
        ("H8",),
        _hidden_after_the_norm,
        DRAFTS,
        *ON_CLASSES,
    ),
    _fault(
        "head-norms-not-shifted",
        Family.PATH_GAP,
        ("H9",),
        lambda patch: _norms_shifted("a", patch),
        DRAFTS,
        *ON_CLASSES,
        reloads=True,
    ),
    _fault(
        "head-norms-shifted-twice",
        Family.PATH_GAP,
        ("H9",),
        lambda patch: _norms_shifted("a + 2.0 if a.ndim == 1 else a", patch),
        DRAFTS,
        *ON_CLASSES,
        reloads=True,
    ),
    _fault(
        "verify-scores-before-the-norm",
        Family.NUMERIC_ROUTE,
        ("H10",),
        _unnormalised,
        frozenset({("", "logits")}),
        shot("control.rows.block-equals-steps", "gdn+mlx-lm", k=1),
        head_rows("gdn+mlx-lm"),
    ),
    _fault(
        "join-the-other-way-round",
        Family.SLOT_ORIGIN,
        (),
        _swapped_join,
        DRAFTS,
        *ON_CLASSES,
    ),
    _fault(
        "head-replays-its-first-round",
        Family.STALE_KEY,
        ("H17",),
        stale_head,
        DRAFTS | HEAD,
        shot(CHAIN, "attn", k=2),
    ),
)
