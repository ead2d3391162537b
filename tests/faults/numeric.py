"""Numeric-route: another kernel, type or rounding on one way through a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache
from mlx_lm.models.gated_delta import gated_delta_ops

from mtp_decoder import row_exact
from mtp_decoder.qwen import gated_delta, recurrence
from mtp_decoder.rewind.recurrent import RecurrentUndo
from mtp_decoder.rewind.tape import TapeUndo
from mtp_decoder.session import Session
from mtp_decoder.window import Window
from tests.faults.editing import Rewind, edit, wrap_undos
from tests.faults.fault import HEAD, Claim, Family, Fault, Place, Shot, one_round, places, shot

RECURRENT = places("layers", range(5), "recurrent")
_SHORT = 2
"""Positions up to which a kernel of another device is right."""


def _through(dtype: mx.Dtype | None, patch: pytest.MonkeyPatch) -> None:
    """A rewound recurrence went through another type; None leaves it in the convolution's."""

    def wrap(index: int, undo: Any, rewind: Rewind) -> Rewind | None:
        del index
        if not isinstance(undo, RecurrentUndo):
            return None

        def faulty(keep: int) -> None:
            rewind(keep)
            state = undo.cache[1]
            narrow = state.astype(dtype or undo.cache[0].dtype)
            undo.cache[1] = narrow if dtype is None else narrow.astype(state.dtype)

        return faulty

    wrap_undos(patch, wrap)


def _narrow_after_verify(patch: pytest.MonkeyPatch) -> None:
    """A pass with drafts leaves the recurrence in the activations' type."""
    run = Window.run

    def faulty(self: Any, tokens: Any) -> Any:
        out = run(self, tokens)
        for undo in self._undos:
            if isinstance(undo, RecurrentUndo) and tokens.shape[1] > 1:
                undo.cache[1] = undo.cache[1].astype(undo.cache[0].dtype)
        return out

    patch.setattr(Window, "run", faulty)


def _narrow_gates(patch: pytest.MonkeyPatch) -> None:
    """The gates on a tape are stored in bfloat16."""
    run = TapeUndo.run

    def faulty(self: Any, x: mx.array, tokens: mx.array) -> mx.array:
        out = run(self, x, tokens)
        for name in ("a", "b"):
            self.tape[name] = self.tape[name].astype(mx.bfloat16)
        return out

    patch.setattr(TapeUndo, "run", faulty)


def _other_product(patch: pytest.MonkeyPatch) -> None:
    """Logits of several rows are rounded otherwise than those of one."""
    verify = Session.verify

    def faulty(self: Any, drafts: Any) -> Any:
        found = verify(self, drafts)
        if found.drafts:
            logits = (found.logits.astype(mx.float32) * 3) / 3 + 2.0**-18
            found = replace(found, logits=logits.astype(found.logits.dtype), verdict=None)
            self._verified = found
        return found

    patch.setattr(Session, "verify", faulty)


def _narrow_between_passes(patch: pytest.MonkeyPatch) -> None:
    """Whatever a prompt's next pass starts from has been through half precision."""

    def narrow(self: Any, chunk: mx.array) -> None:
        for cache in self._caches:
            if isinstance(cache, ArraysCache) and self._length and chunk.shape[1] > 1:
                cache[1] = cache[1].astype(mx.float16).astype(cache[1].dtype)

    patch.setattr(Session, "_narrow", narrow, raising=False)
    forward = "hidden = forward(self._target, chunk, self._caches)"
    edit(patch, vars(Session)["_prefill_chunks"], (forward, f"self._narrow(chunk); {forward}"))


def _drops_state(patch: pytest.MonkeyPatch) -> None:
    """A pass of several rows starts its recurrence from nothing."""
    edit(
        patch,
        gated_delta.scan,
        (
            "state = inputs.a, inputs.b, cache[RECURRENT]",
            "state = inputs.a, inputs.b, [cache[RECURRENT], None][length > 1]",
        ),
    )


def _unasked_kernel(patch: pytest.MonkeyPatch) -> None:
    """The recurrence's kernel is taken whatever the device, and is held to nothing.

    It is another device's, and right for short passes only.
    """

    def elsewhere(step: recurrence.Step) -> tuple[mx.array, mx.array]:
        y, state = gated_delta_ops(*step)
        if step.q.shape[1] <= _SHORT:
            return y, state
        inputs = ("q", "k", "v", "g", "beta")
        short = step._replace(**{name: getattr(step, name)[:, :_SHORT] for name in inputs})
        return y, gated_delta_ops(*short)[1]

    patch.setattr(recurrence, "has_kernel", lambda *_: True)
    patch.setattr(recurrence, "has_the_bits", lambda *_, **__: True)
    patch.setattr(recurrence, "run", elsewhere)


def _same_row(patch: pytest.MonkeyPatch) -> None:
    """Row-exact layers see the first row in place of every later one."""
    rows_of = row_exact.rows_of

    def faulty(array: mx.array) -> list[mx.array]:
        rows = rows_of(array)
        return [rows[0]] * len(rows)

    patch.setattr(row_exact, "rows_of", faulty)


def _only_layers(patch: pytest.MonkeyPatch) -> None:
    """Row-exact mode leaves the tape as a pass of several rows gives it, a row late."""
    advance = row_exact.RowByRowRecurrentLayer.advance_tape

    def faulty(self: Any, tape: Any, tokens: mx.array, cache: Any) -> None:
        advance(
            self,
            {n: mx.concatenate([rows[:, -1:], rows[:, :-1]], axis=1) for n, rows in tape.items()},
            tokens,
            cache,
        )

    patch.setattr(row_exact.RowByRowRecurrentLayer, "advance_tape", faulty)


def _noise(patch: pytest.MonkeyPatch) -> None:
    """Logits differ from run to run."""
    verify = Session.verify

    def faulty(self: Any, drafts: Any) -> Any:
        found = verify(self, drafts)
        noise = mx.random.uniform(shape=found.logits.shape, dtype=mx.float32) * 0.01
        logits = (found.logits.astype(mx.float32) + noise).astype(found.logits.dtype)
        self._verified = replace(found, logits=logits, verdict=None)
        return self._verified

    patch.setattr(Session, "verify", faulty)


def _fault(
    name: str,
    ids: tuple[str, ...],
    apply: Callable[[pytest.MonkeyPatch], None],
    breaks: frozenset[Place],
    *shots: Shot,
    claim: Claim = Claim.STATE,
) -> Fault:
    return Fault(
        id=name,
        family=Family.NUMERIC_ROUTE,
        kind=ids[0][0],
        ids=ids,
        invariant="I1" if claim is Claim.STATE else "N",
        claim=claim,
        shots=shots,
        apply=apply,
        breaks=breaks,
    )


FAULTS = (
    _fault(
        "restore-rounds-to-half",
        ("R14",),
        lambda patch: _through(mx.float16, patch),
        RECURRENT,
        one_round("window", k=1, accepted=0),
        one_round("gdn+mlx-lm", "rerun"),
    ),
    _fault(
        "state-restored-in-activation-type",
        ("N2",),
        lambda patch: _through(None, patch),
        RECURRENT,
        one_round("window", dtype="bfloat16"),
        one_round("ple", "snapshot", dtype="bfloat16"),
    ),
    _fault(
        "state-verified-in-activation-type",
        ("N5",),
        _narrow_after_verify,
        RECURRENT,
        one_round("window", "tape", k=2, accepted=2, dtype="bfloat16"),
    ),
    _fault(
        "prompt-state-through-half",
        ("N2",),
        _narrow_between_passes,
        RECURRENT,
        shot("head.prefill.every-pair", "gdn", k=2, prompt=8),
        shot("head.prefill.every-pair", "window", k=2, prompt=8),
    ),
    _fault(
        "gates-taped-in-bfloat16",
        ("N3",),
        _narrow_gates,
        RECURRENT,
        one_round("window"),
        one_round("gdn+mlx-lm"),
    ),
    _fault(
        "several-rows-drop-the-state",
        ("R17",),
        _drops_state,
        RECURRENT,
        one_round("gdn+mlx-lm", "rerun", k=2, accepted=1),
    ),
    _fault(
        "verify-by-another-kernel",
        ("N1",),
        _other_product,
        frozenset({("", "logits")}),
        shot("control.rows.block-equals-steps", "attn", k=2),
        shot("control.rows.block-equals-steps", "gdn", k=1),
        claim=Claim.ANY,
    ),
    _fault(
        "kernel-that-nobody-asked",
        ("N6",),
        _unasked_kernel,
        RECURRENT,
        one_round("gdn+mlx-lm", k=3, accepted=3, prompt=2),
    ),
    _fault(
        "row-exact-repeats-a-row",
        ("N1",),
        _same_row,
        frozenset(),
        shot("control.rows.row-exact", "qsa", k=3),
        claim=Claim.ANY,
    ),
    _fault(
        "row-exact-rewinds-a-row-late",
        ("N1",),
        _only_layers,
        frozenset(
            (f"layers.{layer}", part) for layer in range(5) for part in ("conv", "recurrent")
        ),
        shot("control.rows.row-exact", "window", "tape", k=3),
    ),
    _fault(
        "row-exact-head-makes-one-row",
        ("H3",),
        lambda patch: edit(
            patch,
            row_exact.RowByRowHead.__call__,
            ("in pairs_of(hidden, tokens)]", "in pairs_of(hidden, tokens)[:1]]"),
        ),
        HEAD,
        shot("control.rows.row-exact", "window", "tape", k=3),
        claim=Claim.HEAD,
    ),
    _fault(
        "no-two-runs-alike",
        ("N9",),
        _noise,
        frozenset(),
        shot("control.determinism.k0-twice", "attn"),
        claim=Claim.ANY,
    ),
)
