"""Path-gap, alias and publish-frontier in the life of a session; quantised keys and values."""

# pyright: reportPrivateUsage=false
# (a fault edits what is private)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache, QuantizedKVCache

from mtp_decoder import saving, session
from mtp_decoder.quantised import KVQuantisation
from mtp_decoder.rewind.kv import KVUndo, cut_rows
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.session import Session
from mtp_decoder.window import Window
from tests.faults.editing import edit
from tests.faults.fault import FRONTIER, Claim, Family, Fault, Place, Shot, places, shot

ANY = places(
    "layers",
    range(6),
    *("keys", "values", "offset", "conv", "recurrent", "ngram", "ple_conv"),
)
QUANTISED = (("kv_bits", 8), ("kv_group_size", 32))
SAVE = shot("lifecycle.save.goes-on", "window")
FAILING = shot("lifecycle.exceptions.in-a-round", "window", k=3)
STREAMING = shot("lifecycle.exceptions.in-a-stream", "window", k=2)
TURN = shot("lifecycle.exceptions.in-a-turn", "window")
SAVING = shot("lifecycle.exceptions.in-a-save", "attn")
RESTORING = shot("lifecycle.exceptions.in-a-restore", "gdn")
LATER = shot(
    "rewind.quantised.in-mid-stream",
    "gdn-wide",
    k=4,
    extra=(*QUANTISED, ("quantized_kv_start", 11)),
)
CANCEL = shot("lifecycle.cancel.leaves-nothing", "window", k=3)


def _cancel_leaves_the_target(patch: pytest.MonkeyPatch) -> None:
    """A cancel after the verify pass takes the head back and leaves the target ahead."""
    edit(patch, Session.cancel, ("opened.window.rewind(0)", "opened.window.nbytes()"))


def _cancel_leaves_the_head(patch: pytest.MonkeyPatch) -> None:
    """A cancel takes the target back and leaves the head's rows."""
    edit(
        patch,
        Session.cancel,
        ("self._drafter.go_back(opened.head)", "self._drafter.hidden = opened.head.hidden"),
    )


def _goes_on_ahead(patch: pytest.MonkeyPatch) -> None:
    """A round that failed is closed; whatever it wrote stays."""
    edit(patch, Session.round, ("        self.cancel()", "        self._open = None"))


def _goes_on_after_verify(patch: pytest.MonkeyPatch) -> None:
    """A failure behind the verify pass, a processor's say, leaves caches where verify ended."""
    edit(
        patch,
        Session.round,
        (
            "        self.cancel()",
            "        if self._verified is None:\n"
            "            self.cancel()\n"
            "        self._open = None",
        ),
    )


def _recurrence_not_restored(patch: pytest.MonkeyPatch) -> None:
    """A restore takes keys and values from the file and leaves recurrent slots as they were."""
    take_over = Session._take_over

    def faulty(self: Any, saved: Any) -> None:
        own = [list(c.cache) if isinstance(c, ArraysCache) else None for c in self._caches]
        take_over(self, saved)
        for cache, slots in zip(self._caches, own, strict=True):
            if slots is not None:
                cache.cache = slots

    patch.setattr(Session, "_take_over", faulty)


def _attention_a_row_short(patch: pytest.MonkeyPatch) -> None:
    """A restore drops the last row, for the head's sake, where it can: the recurrence keeps it."""
    take_over = Session._take_over

    def faulty(self: Any, saved: Any) -> None:
        take_over(self, saved)
        for cache in self._caches:
            if isinstance(cache, KVCache) and cache.offset:
                cut_rows(cache, cache.offset - 1)

    patch.setattr(Session, "_take_over", faulty)


def _hidden_not_saved(patch: pytest.MonkeyPatch) -> None:
    """The hidden state that waits for the next draft is not in the file."""
    write = session.write_session

    def faulty(file: Any, saved: Any) -> None:
        frontier = ArraysCache(size=1)
        frontier[0] = mx.zeros_like(saved.caches[-1][0])
        write(file, replace(saved, caches=[*saved.caches[:-1], frontier]))

    patch.setattr(session, "write_session", faulty)


def _saved_ahead(patch: pytest.MonkeyPatch) -> None:
    """A file holds a token more than was emitted when it was written."""
    write = session.write_session
    save = Session.save

    def faulty(self: Any, file: Any) -> None:
        twin = self.fork()
        twin.round(0)

        def writing(path: Any, saved: Any) -> None:
            write(path, replace(saved, history=tuple(self.history)))

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(session, "write_session", writing)
            save(twin, file)

    patch.setattr(Session, "save", faulty)


def _stub_trim(patch: pytest.MonkeyPatch) -> None:
    """The trim of a quantised cache moves nothing."""
    rewind = KVUndo.rewind

    def faulty(self: Any, keep: int) -> None:
        if not isinstance(self._cache, QuantizedKVCache):
            rewind(self, keep)

    patch.setattr(KVUndo, "rewind", faulty)


def _counted_as_recurrent(patch: pytest.MonkeyPatch) -> None:
    """Quantised caches count as recurrent, so that captured states go back to other layers."""
    init = Window.__init__

    def faulty(self: Any, target: Any, caches: Any, strategy: Any) -> None:
        init(self, target, caches, strategy)
        undos = [undo for undo in self._undos if isinstance(undo, RecurrentUndo)]
        if any(isinstance(cache, QuantizedKVCache) for cache in caches):
            shifted = [undo.before for undo in undos]
            for undo, before in zip(undos, [*shifted[1:], *shifted[:1]], strict=True):
                undo.before = before

    patch.setattr(Window, "__init__", faulty)


def _captured(patch: pytest.MonkeyPatch) -> None:
    """Over quantised caches a pass runs with the offset that the first one of its width had."""
    captured: dict[int, int] = {}
    run = KVUndo.run

    def faulty(self: Any, x: mx.array, tokens: mx.array) -> mx.array:
        cache, width = self._cache, tokens.shape[1]
        if not isinstance(cache, QuantizedKVCache) or width == 1:
            return run(self, x, tokens)
        cache.offset = captured.setdefault(width, cache.offset)
        out = run(self, x, tokens)
        cache.offset = self._start + width
        return out

    patch.setattr(KVUndo, "run", faulty)


def _turn_goes_on_ahead(patch: pytest.MonkeyPatch) -> None:
    """A next turn that failed leaves in the caches what it had run so far."""
    edit(
        patch,
        Session._run_prompt,
        ("self._or_as_before()", "(nullcontext() if self.history else self._or_as_before())"),
    )


def _turn_moves_the_place(patch: pytest.MonkeyPatch) -> None:
    """A next turn that failed leaves the place in the sequence where it had got to."""
    extend = Session.extend

    def faulty(self: Any, tokens: Any) -> Any:
        try:
            return extend(self, tokens)
        except BaseException:
            self._length += 1
            raise

    patch.setattr(Session, "extend", faulty)


def _saved_in_place(patch: pytest.MonkeyPatch) -> None:
    """The file that was there is gone before the new one is written."""
    edit(
        patch,
        saving.write_session,
        (
            "        mx.save_safetensors(",
            "        file.unlink(missing_ok=True)\n        mx.save_safetensors(",
        ),
    )


def _taken_before_it_is_checked(patch: pytest.MonkeyPatch) -> None:
    """A restore puts the file's caches in place and looks whether they fit afterwards."""
    edit(
        patch,
        Session.restore,
        (
            "        self._check_saved(saved)",
            "        self._take_over(saved)\n        self._check_saved(saved)",
        ),
    )


def _crosses_the_start(patch: pytest.MonkeyPatch) -> None:
    """Drafts are verified past the place where their rows are due to be quantised."""
    edit(
        patch,
        KVQuantisation.most_drafts,
        ("return self.start - length - 1 if length < self.start else None", "return None"),
    )


def _quantised_where_verify_ends(patch: pytest.MonkeyPatch) -> None:
    """Rows are quantised once a verify pass reaches so many tokens, rejected ones among them."""
    verify = Session.verify

    def faulty(self: Any, drafts: Any) -> Any:
        found = verify(self, drafts)
        self._quantise()
        for undo, cache in zip(self._window._undos, self._caches, strict=True):
            if isinstance(undo, KVUndo):
                undo._cache = cache
        return found

    patch.setattr(Session, "verify", faulty)


def _fault(
    name: str,
    family: Family,
    ids: tuple[str, ...],
    invariant: str,
    apply: Callable[[pytest.MonkeyPatch], None],
    breaks: frozenset[Place],
    *shots: Shot,
    claim: Claim = Claim.STATE,
    kind: str = "",
) -> Fault:
    return Fault(
        id=name,
        family=family,
        kind=kind or ids[0][0],
        ids=ids,
        invariant=invariant,
        claim=claim,
        shots=shots,
        apply=apply,
        breaks=breaks,
    )


HEAD_ROWS = places("head", (0,), "keys", "values", "offset")
PACKED = places(
    "layers",
    range(6),
    "offset",
    *(f"{rows}{part}" for rows in ("keys", "values") for part in ("", "_scales", "_biases")),
)
FAULTS = (
    _fault(
        "cancel-leaves-the-target-ahead",
        Family.PATH_GAP,
        ("L2",),
        "I8",
        _cancel_leaves_the_target,
        ANY,
        CANCEL,
        FAILING,
    ),
    _fault(
        "cancel-leaves-the-head-ahead",
        Family.PATH_GAP,
        ("L2",),
        "I8",
        _cancel_leaves_the_head,
        HEAD_ROWS,
        CANCEL,
    ),
    _fault(
        "failed-round-goes-on-ahead",
        Family.PATH_GAP,
        ("L3",),
        "I8",
        _goes_on_ahead,
        ANY | HEAD_ROWS | FRONTIER,
        STREAMING,
    ),
    _fault(
        "failed-accept-goes-on-ahead",
        Family.PATH_GAP,
        ("L4",),
        "I8",
        _goes_on_after_verify,
        ANY | HEAD_ROWS | FRONTIER,
        STREAMING,
    ),
    _fault(
        "restore-leaves-the-recurrence",
        Family.PATH_GAP,
        ("L7",),
        "I9",
        _recurrence_not_restored,
        places("layers", range(5), "conv", "recurrent", "ngram", "ple_conv"),
        SAVE,
    ),
    _fault(
        "restore-drops-a-row-of-attention",
        Family.PATH_GAP,
        ("L8",),
        "I2",
        _attention_a_row_short,
        places("layers", range(6), "keys", "values", "offset"),
        SAVE,
        shot("lifecycle.save.goes-on", "gdn"),
    ),
    replace(
        _fault(
            "quantised-pass-as-captured",
            Family.STALE_KEY,
            ("Q5",),
            "I4",
            _captured,
            PACKED | places("layers", range(5), "conv", "recurrent"),
            shot("rewind.quantised.every-accept", "gdn-wide", k=2, extra=QUANTISED),
        ),
        before=(shot("rewind.quantised.every-accept", "gdn-wide", k=2, prompt=3, extra=QUANTISED),),
    ),
    _fault(
        "waiting-hidden-is-not-saved",
        Family.PATH_GAP,
        ("H14",),
        "I9",
        _hidden_not_saved,
        FRONTIER,
        SAVE,
        claim=Claim.HEAD,
    ),
    _fault(
        "file-is-a-token-ahead",
        Family.PUBLISH_FRONTIER,
        ("L10",),
        "I9",
        _saved_ahead,
        ANY,
        SAVE,
        shot("lifecycle.published.saved-file", "window"),
    ),
    _fault(
        "quantised-trim-is-a-stub",
        Family.SKIP_RESTORE,
        ("Q1",),
        "I1",
        _stub_trim,
        PACKED,
        shot("rewind.quantised.every-accept", "gdn-wide", k=2, extra=QUANTISED),
        shot("rewind.quantised.every-accept", "gdn-wide+mlx-lm", k=2, extra=QUANTISED),
    ),
    _fault(
        "quantised-cache-counts-as-recurrent",
        Family.SLOT_ORIGIN,
        ("Q2",),
        "I1",
        _counted_as_recurrent,
        places("layers", range(5), "conv", "recurrent"),
        shot("rewind.quantised.every-accept", "gdn-wide", k=2, extra=QUANTISED),
    ),
    _fault(
        "failed-turn-goes-on-ahead",
        Family.PATH_GAP,
        ("L3",),
        "I8",
        _turn_goes_on_ahead,
        ANY | HEAD_ROWS | FRONTIER,
        TURN,
    ),
    _fault(
        "failed-turn-moves-the-place",
        Family.PATH_GAP,
        ("L3",),
        "I8",
        _turn_moves_the_place,
        frozenset(),
        TURN,
        claim=Claim.ANY,
    ),
    _fault(
        "failed-save-takes-the-old-file",
        Family.PUBLISH_FRONTIER,
        (),
        "I8",
        _saved_in_place,
        frozenset(),
        SAVING,
        claim=Claim.ANY,
        kind="L",
    ),
    _fault(
        "restored-before-it-is-checked",
        Family.PUBLISH_FRONTIER,
        (),
        "I8",
        _taken_before_it_is_checked,
        ANY,
        RESTORING,
        kind="L",
    ),
    _fault(
        "drafts-cross-the-quantised-start",
        Family.BOUNDARY_SHIFT,
        (),
        "I1",
        _crosses_the_start,
        PACKED | places("layers", range(5), "conv", "recurrent"),
        LATER,
        kind="Q",
    ),
    _fault(
        "quantised-where-verify-ends",
        Family.BOUNDARY_SHIFT,
        (),
        "I1",
        _quantised_where_verify_ends,
        PACKED | places("layers", range(5), "conv", "recurrent"),
        LATER,
        kind="Q",
    ),
)
