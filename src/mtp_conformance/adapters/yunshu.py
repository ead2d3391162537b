"""yunshu behind the protocol, over `yunshu_engine.mtp_decoder.MTPDecoder`.

Drives `MTPDecoder.generate` (K=1) in three ways: `documented`, as its docstring has it; `refeed`,
which is that with `use_n_confirmed=False`; `n_confirmed`, which is `documented` after
`apply_n_confirmed_patch`. The patch changes mlx-lm's classes for the process, so what it changed
is put back, by reference, for sessions of the other two. `generate` is one call
for a whole stream, so a session's rounds are a call that replays them and is cancelled, through
its `cancel_event`, before the next one; K=0 is the same call asked for a single token on kept
caches. The decoder is its own subclass whose `_mtp_draft` says an injected draft where one is
due; the model it is handed is behind a view that keeps the caches and notes the logits.
After plain steps the replay begins at the last of them, on a copy of its caches.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models import qwen3_5
from mlx_lm.models.cache import ArraysCache
from yunshu_engine.mtp_decoder import MTPConfig, MTPDecoder
from yunshu_engine.mtp_patch import load_model_with_mtp
from yunshu_engine.n_confirmed_patch import apply_n_confirmed_patch

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import over_after_failure, versions_of
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve

_ENDLESS = 4096
_PATCHED = qwen3_5.GatedDeltaNet, qwen3_5.DecoderLayer, qwen3_5.Qwen3_5TextModel
_STRATEGIES = ("n_confirmed", "refeed", "documented")


class YunshuRuntime:
    """Its decoder over qwen3_5 models."""

    def describe(self) -> Description:
        """Streams, drafts, logits and the target's caches."""
        return Description(
            name="yunshu",
            versions=versions_of("yunshu", "mlx-lm", "mlx"),
            capabilities=frozenset(
                {
                    Capability.STREAM,
                    Capability.GUESS,
                    Capability.DRAFTS,
                    Capability.LOGITS,
                    Capability.STATE,
                }
            ),
            models=("gdn", "gdn-agree", "gdn-moe"),
            strategies=_STRATEGIES,
            max_draft_tokens=1,
            after_stop="block",
            notes={
                "loading": "load_model_with_mtp on a derived folder whose mtp-weights.safetensors "
                "has the head in mlx-lm's names and norm convention; unquantised",
                "documented": "the decoder as its docstring has it, without a patch",
                "n_confirmed": "documented after apply_n_confirmed_patch, which nothing in the "
                "package calls",
                "refeed": "use_n_confirmed=False, without a patch",
                "stops": "its decoder takes end-of-text ids, no stop sequences; K=0 with them is "
                "not run, as it is one call a token",
                "cooldown_on_reject": "off: it makes some rounds without a draft",
                "head": "it drafts without a cache",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> YunshuSession:
        """A new session; models are loaded once a process."""
        if checkpoint.name.endswith("bfloat16") and model == "gdn-moe":
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return YunshuSession(_load(checkpoint), options.strategy or _STRATEGIES[0])


@cache
def _calls() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the patched classes do when called: before and after the patch."""
    assert not hasattr(ArraysCache, "rollback_state")
    before = tuple(owner.__call__ for owner in _PATCHED)
    if not apply_n_confirmed_patch():
        raise RuntimeError("yunshu did not apply its patch")
    return before, tuple(owner.__call__ for owner in _PATCHED)


def _patch(wanted: bool) -> None:
    """Have the classes as after the patch, or as before it."""
    for owner, call in zip(_PATCHED, _calls()[wanted], strict=True):
        owner.__call__ = call
    kept: Any = ArraysCache
    if wanted:
        kept.rollback_state = None
    elif hasattr(kept, "rollback_state"):
        del kept.rollback_state


@cache
def _load(checkpoint: Path) -> Any:
    weights: Any = mx.load(str(checkpoint / "model.safetensors"))
    head = {k: v + 1 if v.ndim == 1 else v for k, v in weights.items() if k.startswith("mtp.")}
    experts = "mtp.layers.0.mlp.experts."
    if experts + "gate_up_proj" in head:
        switch = experts.replace("experts", "switch_mlp")
        gate, up = mx.split(head.pop(experts + "gate_up_proj"), 2, axis=-2)
        head |= {switch + "gate_proj.weight": gate, switch + "up_proj.weight": up}
        head[switch + "down_proj.weight"] = head.pop(experts + "down_proj")
    with tempfile.TemporaryDirectory() as derived:
        for name in ("config.json", "model.safetensors"):
            (Path(derived) / name).symlink_to((checkpoint / name).resolve())
        mx.save_safetensors(str(Path(derived) / "mtp-weights.safetensors"), head)
        model = load_model_with_mtp(derived)
        mx.eval(model.parameters())
    return model


class _Tokenizer:
    """What the decoder asks of a tokenizer."""

    eos_token_id: Sequence[int] = ()


class _Model:
    """A view of the model on a session's caches; notes what the model says."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.mtp_forward = model.mtp_forward
        self.caches: list[Any] = []
        self.start: list[Any] | None = None
        self.block: Any = None

    def make_cache(self) -> list[Any]:
        """New caches, or those a call is to go on from."""
        self.caches = self._model.make_cache() if self.start is None else self.start
        return self.caches

    def __call__(self, inputs: mx.array, **how: Any) -> Any:
        logits, hidden = self._model(inputs, **how)
        # after a reject the decoder asks for one row more, to draft from
        if "n_confirmed" in how or inputs.shape[1] == 2 or self.block is None:
            self.block = logits[0]
        return logits, hidden


class _Decoder(MTPDecoder):
    """The decoder, its drafts by `say` where that has one for what was emitted so far."""

    say: Callable[[Sequence[int]], int | None]

    def _mtp_draft(
        self,
        hidden: Any,
        primary: int,
        constraint: Any = None,
        generated_ids: list[int] | None = None,
    ) -> int:
        own = super()._mtp_draft(hidden, primary, constraint, generated_ids)
        said = self.say(generated_ids or ())
        return own if said is None else said


class _After:
    """A cancel event that is set once `rounds` rounds have begun."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def is_set(self) -> bool:
        """Asked before every round."""
        self._left -= 1
        return self._left < 0


@over_after_failure
class YunshuSession:
    """One sequence: the prompt, the drafts of its rounds, and what they emitted."""

    def __init__(self, model: Any, strategy: str) -> None:
        self._model, self._patched = _Model(model), strategy == "n_confirmed"
        self._tokenizer = _Tokenizer()
        config = MTPConfig(use_n_confirmed=strategy != "refeed")
        self._decoder = _Decoder(self._model, self._tokenizer, config)
        self._start: tuple[list[Any] | None, list[int]] = (None, [])
        self._script: list[int] = []
        self._emitted: list[int] = []

    def _one(self, tokens: Sequence[int], caches: list[Any] | None) -> int:
        """One token of the decoder's own, without a draft."""
        self._model.start, self._model.block = caches, None
        return self._decode(tokens, max_tokens=1)[0]

    def _decode(self, tokens: Sequence[int], **how: Any) -> list[int]:
        """A call of the decoder."""
        _patch(self._patched)
        return self._decoder.generate(list(tokens), **how)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt and emit the first token."""
        self._start, self._script = (None, list(tokens)), []
        self._emitted = [self._one(tokens, None)]
        return Outcome(0, tuple(self._emitted), self._model.block[-1:])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """A plain step, or all rounds since the last one and one more.

        Raises:
            ValueError: `unsupported:` for more than one draft.
        """
        if len(drafts) > 1:
            raise ValueError("unsupported: this decoder drafts one token in every round")
        if not drafts:
            anchor, caches = self._emitted[-1:], self._model.caches
            self._start, self._script = (copy.deepcopy(caches), anchor), []
            self._emitted = [self._one(anchor, caches)]
            return Outcome(0, tuple(self._emitted), self._model.block[-1:])
        self._script += drafts
        script = iter(self._script)
        self._decoder.say = lambda emitted: next(script)
        caches, tokens = self._start
        self._model.start, self._model.block = copy.deepcopy(caches), None
        rounds = _After(len(self._script))
        emitted = self._decode(tokens, max_tokens=_ENDLESS, cancel_event=rounds)
        if self._decoder.stats.total_cycles != len(self._script):
            raise RuntimeError("the decoder did not verify the drafts it was given")
        new = tuple(emitted[len(self._emitted) :])
        self._emitted = emitted
        return Outcome(len(new) - 1, new, self._model.block)

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
    ) -> Generated:
        """One call of the decoder, everything it emits.

        Raises:
            ValueError: `unsupported:` for stop sequences, and for an end of text with K=0.
        """
        if stop_sequences:
            raise ValueError("unsupported: its generator takes no stop sequences")
        if num_draft_tokens == 0:
            if eos_token_ids:
                raise ValueError("unsupported: K=0 is one call a token")
            emitted = [self._one(tokens, None)]
            while len(emitted) < max_tokens:
                emitted.append(self._one(emitted[-1:], self._model.caches))
            return Generated(tuple(emitted), 0, 0)
        self._model.start = None
        self._decoder.say = lambda emitted: (
            None if guess is None else ([*guess[len(emitted) :], 0][0])
        )
        self._tokenizer.eos_token_id = list(eos_token_ids)
        emitted = self._decode(tokens, max_tokens=max_tokens)
        self._tokenizer.eos_token_id = ()
        stats = self._decoder.stats
        return Generated(tuple(emitted), stats.total_cycles, stats.accepts)

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        return state_of(self._model.caches)

    def close(self) -> None:
        """Nothing is held."""


def make_runtime() -> YunshuRuntime:
    """The factory the command line names."""
    return YunshuRuntime()


if __name__ == "__main__":
    serve(make_runtime())
