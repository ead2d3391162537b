"""mlx-vlm's native MTP decoding behind the protocol.

Entry points: `mlx_vlm.utils.load_model` and `mlx_vlm.speculative.drafters.load_drafter` on the
checkpoint folder as it is, `mlx_vlm.generate.ar.generate_step` with `draft_kind="mtp"` and
`draft_block_size=K+1`. The drafter is asked through its own `draft_block`; given drafts go
through it as one-hot logits, so that its cache advances as with drafts of its own.

`generate` with K=0 is `generate_step` without a drafter. That one runs a token ahead of what it
yields, so a plain `round` calls the target as it does, on the session's caches. The first round
with drafts replays plain rounds before it in the MTP loop, as blocks without drafts.

    mtp-conformance smoke --model gdn --runtime-cmd "python -m mtp_conformance.adapters.mlx_vlm"
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

# The runtime is in an environment of its own.
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_vlm.generate.ar import generate_step
from mlx_vlm.models.cache import make_prompt_cache
from mlx_vlm.speculative.drafters import load_drafter
from mlx_vlm.utils import load_model

from mtp_conformance.adapters.caches import components, index_arrays
from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    versions_of,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from mtp_conformance.stdio import serve

_MAX_DRAFT_TOKENS = 8


class MlxVlmRuntime:
    """Opens what mlx-vlm opens together with an MTP drafter from the same folder."""

    def describe(self) -> Description:
        """See the protocol."""
        offered = ("stream", "guess", "drafts", "logits", "state")
        return Description(
            name="mlx-vlm",
            versions=versions_of("mlx-vlm", "mlx", "mlx-lm"),
            capabilities=frozenset(map(Capability, offered)),
            models=("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe", "flash-next"),
            max_draft_tokens=_MAX_DRAFT_TOKENS,
            after_stop="block",
            notes={
                "loading": "load_model and load_drafter read the folder as it is.",
                "drafting": "The qwen4_exp drafter gets prefer_requested_block_size=True, so that "
                "every round has K drafts.",
                "head-state": "Not offered: the drafter makes the anchor's row before the round, "
                "and rows of accepted drafts from the target's residual or the chain's, by K.",
                "qwen3_next": "Not listed: its target returns no hidden states to the MTP loop.",
                "attn": "Not listed: qwen3_5 without a recurrent layer fails in its mask.",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> MlxVlmSession:
        """A new session; the target is shared, the drafter holds a sequence and is not."""
        if model in ("gdn-moe", "flash-next") and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        drafter, _ = load_drafter(str(checkpoint))
        drafter.prefer_requested_block_size = True
        return MlxVlmSession(_target(checkpoint), drafter, options)


@cache
def _target(checkpoint: Path) -> Any:
    return load_model(checkpoint)


class MlxVlmSession(GeneratorSession):
    """One sequence: the generator, the list of caches it was given, and its drafter."""

    def __init__(self, model: Any, drafter: Any, options: Options) -> None:
        super().__init__(self._begin)
        self._language: Any = model.language_model
        self._model, self._drafter = model, drafter
        self._options = options
        self._native = drafter.draft_block, drafter.accept_verified_tokens
        drafter.draft_block = self._draft_block
        drafter.accept_verified_tokens = self._accept
        self._due: int | None = None
        self._plain_rounds: int | None = None

    def _begin(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, _: Ends
    ) -> Iterator[Emitted]:
        drafter, self._injected = self._drafter, injection
        self._cache: list[Any] = make_prompt_cache(self._language)
        settings: dict[str, Any] = {
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "prompt_cache": self._cache,
            "prefill_step_size": self._options.prefill_step_size,
        }
        if k:
            settings |= {"draft_model": drafter, "draft_kind": "mtp", "draft_block_size": k + 1}
            settings["logits_processors"] = [self._see]
        drafter.accept_lens = []
        rounds = stands = 0
        for token, _ in generate_step(mx.array([prompt]), self._model, None, None, **settings):
            if len(drafter.accept_lens) > rounds:
                rounds, stands = len(drafter.accept_lens), drafter.accept_lens[-1]
            yield int(token), stands > 0
            stands -= 1

    def _see(self, _: mx.array, logits: mx.array) -> mx.array:
        """A logits processor that keeps the prefill's logits and changes nothing."""
        self._logits = logits
        return logits

    def _draft_block(
        self, last: Any, hidden: mx.array, caches: Any, size: int, *rest: Any, **named: Any
    ) -> mx.array:
        """The drafter's `draft_block`, with logits of given drafts where there are any."""
        drafter, native = self._drafter, self._native[0]
        k = size - 1 if self._due is None else self._due
        self._injected.note(k)
        if k == 0:
            return mx.zeros((1, 0), dtype=mx.int32)
        index = 1 + sum(accepted + 1 for accepted in drafter.accept_lens)
        given = self._injected.block(index, k)
        if given is None:
            return native(last, hidden, caches, size, *rest, **named)
        ids = iter(given if drafter._seed_token is None else given[1:])
        if drafter._seed_token is not None:  # the first draft is chosen a round ahead
            drafter._seed_token = mx.array([given[:1]])
        readout = drafter._lm_head_fn, getattr(drafter, "_greedy_argmax_fn", None)
        vocabulary = mx.arange(self._language.args.vocab_size)
        drafter._lm_head_fn = lambda _: (vocabulary == next(ids)).astype(mx.float32)[None, None]
        drafter._greedy_argmax_fn = None
        try:
            return native(last, hidden, caches, k + 1, *rest, **named)
        finally:
            drafter._lm_head_fn, drafter._greedy_argmax_fn = readout

    def _accept(self, hidden: mx.array, *rest: Any, **named: Any) -> None:
        """The drafter's `accept_verified_tokens`; the verified rows' logits are kept."""
        if self._due is not None:
            self._logits = self._language.speculative_logits_from_hidden(hidden)[0]
        self._native[1](hidden, *rest, **named)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Start the MTP loop; it emits the first token before it drafts."""
        self._prompt, self._plain_rounds = list(tokens), 0
        self._run(_MAX_DRAFT_TOKENS)
        self._anchor = self._first
        return Outcome(0, (self._first,), self._logits)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """A plain step until there are drafts, a round of the MTP loop from then on."""
        if self._plain_rounds is not None and not drafts:
            self._plain_rounds += 1
            step = self._language(mx.array([[self._anchor]]), cache=self._cache, logits_to_keep=1)
            logits: Any = step.logits[:, -1]
            self._anchor = int(logits.argmax(-1).item())
            return Outcome(0, (self._anchor,), logits)
        if self._plain_rounds:
            self._run(_MAX_DRAFT_TOKENS)
        replayed, self._plain_rounds = self._plain_rounds or 0, None
        for _ in range(replayed):
            self._due = self._k = 0
            super().round(())
        self._due = self._k = len(drafts)
        outcome = super().round(drafts)
        return Outcome(outcome.accepted, outcome.tokens, self._logits)

    def state(self) -> dict[str, mx.array]:
        """The target's caches as copies."""
        return {
            f"layers.{index}.{name}": mx.array(array)
            for index, layer in enumerate(self._cache)
            for name, array in self._arrays(layer).items()
        }

    def _arrays(self, layer: Any) -> dict[str, mx.array]:
        """Live arrays of one cache; its index of qwen4_exp has raw rows and their positions."""
        found = components(layer)
        rows = getattr(layer, "index_keys", None)
        if rows is None:
            return found
        positions = layer.index_position_ids.astype(mx.int32)  # of steps int32, of blocks int64
        ratio = self._language.args.indexer_compress_ratio
        return {**found, **index_arrays(rows, ratio), "index_positions": positions}


def make_runtime() -> MlxVlmRuntime:
    """The factory the command line names."""
    return MlxVlmRuntime()


if __name__ == "__main__":
    serve(make_runtime())
