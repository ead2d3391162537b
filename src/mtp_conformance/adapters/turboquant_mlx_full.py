"""turboquant-mlx-full behind the protocol, over the loop of `turboquant_mlx.mtp`.

Drives `speculative_generate` (K=1) and, for streams with K=0, `greedy_generate`; a round with
K=0 is the former begun anew on kept caches, which starts with a plain step. The loop is handed its
decoder stack, drafter and output projection by its caller, so nothing is patched: the drafter
is its `MTPHead` with a result that says an injected draft where one is due, the projection
notes the logits it gives. The checkpoint is read as its converter reads one: `get_model_classes`
for the target, `preserve_mtp` and `load_mtp` for the head.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model
from turboquant_mlx import mtp as turboquant
from turboquant_mlx.compat import get_model_classes

from mtp_conformance.adapters.caches import index_arrays, state_of
from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    over_after_failure,
    versions_of,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from mtp_conformance.stdio import serve

_ENDLESS = 4096
_RATIO = 4  # rows an index block of the zoo
_QWEN3 = ("gdn", "gdn-agree", "gdn-moe", "gdn-next")


class TurboquantRuntime:
    """Its loop over the models its loader knows."""

    def describe(self) -> Description:
        """Streams, drafts, logits and the target's caches."""
        return Description(
            name="turboquant-mlx-full",
            versions=versions_of("turboquant-mlx-full", "mlx-lm", "mlx"),
            capabilities=frozenset(
                {
                    Capability.STREAM,
                    Capability.GUESS,
                    Capability.DRAFTS,
                    Capability.LOGITS,
                    Capability.STATE,
                }
            ),
            models=(*_QWEN3, "flash-next"),
            strategies=("states", "snapshot"),
            head_rows=("target",),
            max_draft_tokens=1,
            after_stop="block",
            notes={
                "loading": "target by mlx-lm's load_model with turboquant's get_model_classes, "
                "unquantised; the head through preserve_mtp and load_mtp",
                "gdn-moe, gdn-next": "MTPHead knows the dense head alone: experts are renamed "
                "for it, and qwen3_next's stack is handed token ids in place of embeddings",
                "flash-next": "it has no head for this family: injected drafts alone",
                "head-state": "not shown: after an accepted draft the head's row is appended "
                "when the next round starts",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> TurboquantSession:
        """A new session; models are loaded once a process."""
        if checkpoint.name.endswith("bfloat16") and model in ("gdn-moe", "gdn-next", "flash-next"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        parts = _load(checkpoint)
        strategy = options.strategy or "auto"
        try:
            turboquant.resolve_rollback(parts.text, strategy)
        except RuntimeError as error:
            raise ValueError(f"unsupported: {error}") from error
        return TurboquantSession(parts, strategy)


class _Parts:
    """What the loop is handed: a decoder stack as a callable, embedding, projection, drafter."""

    def __init__(self, model: Any, head: Any) -> None:
        inner = getattr(model, "language_model", model)
        self.text = _Stack(inner.model) if model.model_type == "qwen3_next" else inner.model
        self.embed = inner.model.embed_tokens
        self.project = inner.lm_head
        self.make_cache = model.make_cache
        self.head = head


class _Stack:
    """qwen3_next's decoder stack, which embeds its token ids itself."""

    def __init__(self, stack: Any) -> None:
        self._stack = stack
        self.layers = stack.layers

    def __call__(self, ids: mx.array, cache: Any, input_embeddings: mx.array) -> mx.array:
        del input_embeddings
        return self._stack(ids, cache=cache)


@cache
def _load(checkpoint: Path) -> _Parts:
    model: Any
    model, config = load_model(checkpoint, get_model_classes=get_model_classes)
    if config["model_type"] == "qwen4_exp":
        return _Parts(model, None)
    with tempfile.TemporaryDirectory() as converted:
        turboquant.preserve_mtp(str(checkpoint), converted)
        tensors = turboquant.load_mtp(converted)
        mx.eval(tensors)
    layer = "mtp.layers.0.mlp."
    if layer + "experts.gate_up_proj" in tensors:
        gate, up = mx.split(tensors.pop(layer + "experts.gate_up_proj"), 2, axis=-2)
        tensors[layer + "switch_mlp.gate_proj.weight"] = gate
        tensors[layer + "switch_mlp.up_proj.weight"] = up
        down = tensors.pop(layer + "experts.down_proj")
        tensors[layer + "switch_mlp.down_proj.weight"] = down
    elif layer + "experts.0.up_proj.weight" in tensors:
        for name in ("gate_proj", "up_proj", "down_proj"):
            keys = [k for k in tensors if k.startswith(layer + "experts.") and name in k]
            keys.sort(key=lambda k: int(k.split(".")[5]))
            stacked = mx.stack([tensors.pop(k) for k in keys])
            tensors[f"{layer}switch_mlp.{name}.weight"] = stacked
    args = turboquant._text_args(model)
    head = turboquant.MTPHead(args)
    head.load(tensors)
    return _Parts(model, head)


class _Draft:
    """The drafter's result; the loop looks at it where it takes a draft, and only there."""

    def __init__(self, session: TurboquantSession, logits: mx.array | None) -> None:
        self._session = session
        self._logits = logits

    def __getitem__(self, at: Any) -> mx.array:
        injection, index = self._session.injection, self._session.emitted
        drafts = injection.block(index, 1)
        injection.note(1)
        if drafts is not None:
            size = self._session.vocabulary
            return (mx.arange(size) == drafts[0]).astype(mx.float32)[None]
        if self._logits is None:
            raise ValueError("unsupported: turboquant-mlx-full has no head for this family")
        return self._logits[at]


@over_after_failure
class TurboquantSession(GeneratorSession):
    """One sequence over `speculative_generate`, its caches and logits in view."""

    def __init__(self, parts: _Parts, strategy: str) -> None:
        super().__init__(self._tokens, takes_eos=True)
        self._parts = parts
        self._strategy = strategy
        self._caches: list[Any] = []
        self._anchor = 0
        self.injection = Injection()
        self.emitted = 0
        self.vocabulary: int = parts.embed.weight.shape[0]

    def _project(self, hidden: mx.array) -> mx.array:
        self._logits = self._parts.project(hidden)
        return self._logits

    def _drafter(
        self, hidden: mx.array, ids: mx.array, embed: Any, project: Any, *, cache: Any
    ) -> _Draft:
        del project  # the noted one is for the target's rows
        head = self._parts.head
        done = None if head is None else head(hidden, ids, embed, self._parts.project, cache=cache)
        return _Draft(self, done)

    def _make_cache(self) -> list[Any]:
        self._caches = self._parts.make_cache()
        return self._caches

    def _tokens(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        if k:
            yield from self._loop(prompt, max_tokens, injection, eos=ends.eos_token_ids)
            return
        text, embed = self._parts.text, self._parts.embed
        ids = mx.array([list(prompt)])
        for token in turboquant.greedy_generate(
            ids,
            text,
            embed,
            self._project,
            max_tokens=max_tokens,
            eos_ids=ends.eos_token_ids,
            make_cache=self._make_cache,
        ):
            yield token, False

    def _loop(
        self,
        tokens: Sequence[int],
        max_tokens: int,
        injection: Injection,
        *,
        keep: bool = False,
        eos: Sequence[int] = (),
    ) -> Iterator[Emitted]:
        """The loop from these tokens on, on new caches or on those at hand."""
        self.injection, self.emitted = injection, 0
        caches = self._caches
        loop = turboquant.speculative_generate(
            mx.array([list(tokens)]),
            self._parts.text,
            self._drafter,
            self._parts.embed,
            self._project,
            max_tokens=max_tokens,
            eos_ids=eos,
            make_cache=(lambda: caches) if keep else self._make_cache,
            rollback_mode=self._strategy,
        )
        return (self._noted(token, stands) for token, stands in loop)

    def _noted(self, token: int, stands: bool) -> Emitted:
        self.emitted += 1
        self._anchor = token
        return token, stands

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt and emit the first token."""
        self._running = self._loop(tokens, _ENDLESS, Injection())
        next(self._running)
        return Outcome(0, (self._anchor,), self._logits[0])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """A turn of the loop; a plain step is the loop begun anew, on the anchor.

        Raises:
            ValueError: `unsupported:` for more than one draft.
        """
        if len(drafts) > 1:
            raise ValueError("unsupported: this loop drafts one token")
        if not drafts:
            self._running = self._loop([self._anchor], _ENDLESS, Injection(), keep=True)
        assert self._running is not None
        before = self.injection.drafted
        self.injection.say_next(drafts)
        emitted: list[int] = []
        for token, stands in self._running:
            emitted.append(token)
            if not stands:
                break
        if self.injection.drafted - before != len(drafts):
            raise RuntimeError("the loop did not ask for the draft")
        return Outcome(len(emitted) - 1, tuple(emitted), self._logits[0])

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        found = state_of(self._caches)
        for index, layer in enumerate(self._caches):
            rows = getattr(getattr(layer, "indexer", None), "keys", None)
            if rows is not None:
                parts = index_arrays(rows, _RATIO).items()
                found |= {f"layers.{index}.{name}": array for name, array in parts}
        return found


def make_runtime() -> TurboquantRuntime:
    """The factory the command line names."""
    return TurboquantRuntime()


if __name__ == "__main__":
    serve(make_runtime())
