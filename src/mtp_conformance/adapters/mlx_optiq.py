"""mlx-optiq behind the protocol, over the loop of `optiq.runtime.engine.OptiqEngine`.

Streams are its `generate_stream(prompt_ids=, cache=, depth=K)`, as its server calls it, on a
cache of the adapter's. That generator is one token ahead of what it hands out, so rounds are
taken from the iterators it is made of: `_prefill_chunked`, and one turn of `_ar_loop_iter` or
`_mtp_loop_iter`, which start from caches, hidden and anchor.
The engine is its own subclass whose `_mtp_draft` says an injected draft where one is due; the
model's output projection is wrapped to note the logits it gives. Nothing else is touched.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import optiq
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from optiq.runtime.engine import GenStats, OptiqEngine

from mtp_conformance.adapters.caches import state_of
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


class OptiqRuntime:
    """Its engine over qwen3_5 models; others it loads without their head."""

    def describe(self) -> Description:
        """Streams, drafts, logits and the target's caches."""
        return Description(
            name="mlx-optiq",
            versions={"mlx-optiq": optiq.__version__, **versions_of("mlx-lm", "mlx")},
            capabilities=frozenset(
                {
                    Capability.STREAM,
                    Capability.GUESS,
                    Capability.DRAFTS,
                    Capability.LOGITS,
                    Capability.STATE,
                }
            ),
            models=("gdn", "gdn-agree", "gdn-moe", "gdn-mtp2"),
            strategies=("capture",),
            max_draft_tokens=3,
            after_stop="block",
            notes={
                "loading": "mlx-lm's load_model and OptiqEngine.from_loaded, which reads the head "
                "from the checkpoint's own shards; unquantised",
                "head": "it drafts without a cache, from the last hidden alone, and runs the "
                "first of two head layers",
                "gdn-next, flash-next": "the engine finds no head of these families and refuses "
                "depth > 0",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> OptiqSession:
        """A new session; models are loaded once a process."""
        del options
        if checkpoint.name.endswith("bfloat16") and model == "gdn-moe":
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return OptiqSession(_load(checkpoint))


class _Tokenizer:
    """What the engine asks of a tokenizer; its end-of-text ids are those of a call."""

    eos_token_id: tuple[int, ...] = ()
    eot_token_id = None

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """No text."""
        del ids
        return ""


class _Projection:
    """The model's output projection, and the logits it gave last."""

    def __init__(self, projection: Any) -> None:
        self._projection = projection
        self.logits: Any = None

    def __call__(self, hidden: mx.array) -> mx.array:
        self.logits = self._projection(hidden)
        return self.logits


class _Engine(OptiqEngine):
    """The engine, its drafter asking the session that decodes."""

    session: OptiqSession
    projection: _Projection
    ends: _Tokenizer

    def _mtp_draft(self, hidden_last: Any, next_token_id: int, mtp_cache: list[Any]) -> Any:
        logits, hidden = super()._mtp_draft(hidden_last, next_token_id, mtp_cache)
        draft = self.session.draft(mtp_cache)
        if draft is not None:
            logits = (mx.arange(logits.shape[-1]) == draft).astype(mx.float32)[None, None]
        return logits, hidden


@cache
def _load(checkpoint: Path) -> _Engine:
    model: Any = load_model(checkpoint)[0]
    projection = _Projection(model.language_model.lm_head)
    model.language_model.lm_head = projection
    tokenizer = _Tokenizer()
    engine = _Engine.from_loaded(model, tokenizer, str(checkpoint))
    if not engine.has_mtp:
        raise ValueError("unsupported: the engine finds no head in this checkpoint")
    engine.projection, engine.ends = projection, tokenizer
    return engine


@over_after_failure
class OptiqSession(GeneratorSession):
    """One sequence over an engine that sessions share, taking turns."""

    def __init__(self, engine: _Engine) -> None:
        super().__init__(self._stream, takes_eos=True)
        self._engine = engine
        self._caches: list[Any] = []
        self._said = Injection()
        self._prompt_length = self._depth = self._anchor = 0
        self._hidden: Any = None
        self._block: tuple[object, list[int] | None] = (None, None)

    def draft(self, block: object) -> int | None:
        """The next injected draft of a block, a list of the engine's that is new every round."""
        if self._block[0] is not block:
            held = next(c.offset for c in self._caches if hasattr(c, "offset"))
            index = held - self._prompt_length + 1
            self._block = block, self._said.block(index, self._depth)
        self._said.note(1)
        drafts = self._block[1]
        return None if drafts is None else drafts.pop(0)

    def _stream(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        self._begin(prompt, k, injection)
        self._engine.ends.eos_token_id = ends.eos_token_ids  # read where the stream begins
        for event in self._engine.generate_stream(
            "", max_tokens=max_tokens, depth=k, prompt_ids=list(prompt), cache=self._caches
        ):
            yield event["token"], event["from_draft"]
            self._engine.session = self

    def _begin(self, prompt: Sequence[int], k: int, injection: Injection) -> None:
        self._engine.session = self
        self._said, self._depth, self._prompt_length = injection, k, len(prompt)
        self._caches = make_prompt_cache(self._engine._model)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt and emit the first token."""
        self._begin(tokens, 0, Injection())
        hidden, logits = self._engine._prefill_chunked(list(tokens), self._caches)
        self._anchor, self._hidden = int(logits[0, -1].argmax().item()), hidden[:, -1:, :]
        return Outcome(0, (self._anchor,), logits[0, -1:])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """One turn of the engine's loop, which starts from caches and anchor alone."""
        engine, k = self._engine, len(drafts)
        engine.session, self._depth = self, k
        engine.projection.logits = None
        self._said = Injection()
        self._said.say_next(drafts)
        loop: Iterator[Emitted]
        if k == 0:
            loop = engine._ar_loop_iter(self._caches, self._anchor, 1, 0.0, set())
        else:
            stats = GenStats(prompt_tokens=self._prompt_length, mode="MTP", depth=k)
            loop = engine._mtp_loop_iter(
                self._caches, self._hidden, self._anchor, k + 1, k, 0.0, set(), stats
            )
        emitted: list[int] = []
        for token, stands in loop:
            emitted.append(token)
            if not stands:
                break
        self._anchor = emitted[-1]
        if self._said.drafted != k or engine.projection.logits.shape[1] != k + 1:
            raise RuntimeError(f"the engine did not verify {k} drafts in one pass")
        return Outcome(len(emitted) - 1, tuple(emitted), engine.projection.logits[0])

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        return state_of(self._caches)


def make_runtime() -> OptiqRuntime:
    """The factory the command line names."""
    return OptiqRuntime()


if __name__ == "__main__":
    serve(make_runtime())
