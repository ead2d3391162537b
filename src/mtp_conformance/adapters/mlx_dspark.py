"""mlx-dspark: two of its greedy loops, and `Target.verify` and `Target.rollback` for rounds.

Models are opened by `load_target(require_tap=True)`. `generate` is `speculative_generate` or
`lookup_generate`, by strategy; K=0 is `greedy_generate`. Their drafters `DSparkDrafter` and
`NGramIndex` are subclassed so that they say what is injected. A round is `Target.verify` on the
block, with the hidden states that loop taps, and `Target.rollback`, as the loops call them.
"""
# Its packages live in the runtime's own environment alone, and the checker takes this file for the
# one of the same name.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import mlx.core as mx
from mlx_dspark import DSparkConfig, greedy_generate, lookup, speculative_generate
from mlx_dspark.load import load_target
from mlx_dspark.model import DSparkDrafter

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import Injection, over_after_failure, versions_of
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve

_MODELS = ("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe", "gdn-next")
_EXPERTS = ("gdn-moe", "gdn-next")
_STRATEGIES = ("dspark", "lookup")
_MAX_K = 8
_TAP = (0, 2)


class MlxDsparkRuntime:
    """Opens models of the Qwen families with the runtime's own loader."""

    def describe(self) -> Description:
        """The card."""
        offered = ("STREAM", "GUESS", "DRAFTS", "LOGITS", "STATE", "FORK")
        return Description(
            name="mlx-dspark",
            versions=versions_of("mlx-dspark", "mlx-lm", "mlx"),
            capabilities=frozenset(Capability[name] for name in offered),
            models=_MODELS,
            strategies=_STRATEGIES,
            max_draft_tokens=_MAX_K,
            after_stop="block",
            notes={
                "head": "it drives no MTP head; the checkpoint's is not read",
                "lookup": "drafts from n-grams of one token on (ngram_min=1), at most K long",
                "dspark": "a drafter of random weights (one seed) whose Markov head is made of "
                "the target's embedding and output head, with lookup_drafts=False",
                "stops": "its loops take end-of-text ids; stop sequences they look for in text",
                "plain": "K=0 asks for logprobs, which decodes step by step, not pipelined",
                "budget": "its loops emit up to K tokens past max_new_tokens; they are shown",
                "attn": "mlx-lm's qwen3_5 cannot run without a linear-attention layer",
                "qwen4_exp": "its prefill asks mlx-vlm for logits_from_hidden, which is not there",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> MlxDsparkSession:
        """A new session; target and drafter are made once a process."""
        if model not in _MODELS:
            raise ValueError(f"unsupported: no loop of this runtime can run {model}")
        if model in _EXPERTS and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return MlxDsparkSession(_load(checkpoint), options)


class _Voice:
    """What the drafter of one call is to say, and the loop's own report of its rounds."""

    def __init__(self, guess: Sequence[int] | None, k: int) -> None:
        self._injection, self._k, self._emitted = Injection(guess), k, 1
        self.asked = self.drafted = self.accepted = 0

    def given(self) -> list[int] | None:
        """Drafts for the block the loop asks for; None: the drafter's own."""
        self.asked += 1
        return self._injection.block(self._emitted, self._k)

    def on_round(self, *, drafted: int, accepted: int, committed: int, **_: Any) -> None:
        """Called by the loop after each round."""
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + accepted
        self._emitted += committed


class _Index(lookup.NGramIndex):
    def __init__(self, voice: _Voice, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._voice = voice

    def propose(self, long_draft: int | None = None) -> list[int]:
        given = self._voice.given()
        return super().propose(long_draft) if given is None else given


class _DSpark(DSparkDrafter):
    voice: _Voice

    def sample_block(self, base_logits: mx.array, first_prev_token: int) -> mx.array:
        given = self.voice.given()
        own = super().sample_block(base_logits, first_prev_token)
        return own if given is None else mx.array(given, own.dtype)


@cache
def _load(checkpoint: Path) -> tuple[Any, Any]:
    """Target and drafter."""
    target = load_target(str(checkpoint), require_tap=True)[0]
    inner = target._inner  # the text model, wrapped or not
    embedding, head = inner.model.embed_tokens.weight, inner.lm_head.weight
    vocabulary, width = embedding.shape
    config = DSparkConfig(
        family="qwen3",
        norm_style="qwen",
        mlp_activation="silu",
        attention_k_eq_v=False,
        use_v_norm=False,
        rope_type="default",
        final_logit_softcapping=None,
        enable_confidence_head=False,
        hidden_size=width,
        vocab_size=vocabulary,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=width,
        block_size=_MAX_K,
        target_layer_ids=list(_TAP),
        markov_rank=width,
    )
    mx.random.seed(0)
    drafter = _DSpark(config)
    drafter.markov_head.markov_w1.weight = 64 * inner.model.norm(embedding)
    drafter.markov_head.markov_w2.weight = head
    drafter.set_dtype(embedding.dtype)
    return target, drafter


@over_after_failure
class MlxDsparkSession:
    """One sequence over a list of the target's caches."""

    def __init__(self, loaded: tuple[Any, Any], options: Options) -> None:
        self._loaded = loaded
        self._target = loaded[0]
        self._options = options
        self._strategy = options.strategy or _STRATEGIES[0]
        self._tap = None if self._strategy == "lookup" else list(_TAP)
        self._caches: Any = self._target.make_cache()
        self._anchor = 0

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt by `Target.prefill`, in chunks as the loops do."""
        logits: Any = None
        self._caches = self._target.make_cache()  # also after one that failed
        self._target.reset_spec()
        step = self._options.prefill_step_size
        for start in range(0, len(tokens), step):
            ids = mx.array([list(tokens[start : start + step])])
            last = start + step >= len(tokens)
            logits = self._target.prefill(ids, self._caches, self._tap, want_logits=last)[0]
        self._anchor = cast("int", mx.argmax(logits[0, -1]).item())
        return Outcome(0, (self._anchor,), logits[0, -1:])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Verify, accept and roll back by the calls of the loops."""
        block = mx.array([[self._anchor, *drafts]])
        logits = self._target.verify(block, self._caches, self._tap)[0][0]
        rows: list[int] = [int(row) for row in mx.argmax(logits, axis=-1)]
        right = [draft == row for draft, row in zip(drafts, rows, strict=False)]
        accepted = [*right, False].index(False)
        kept = list(drafts[:accepted])
        self._target.rollback(self._caches, len(drafts) - accepted, kept)
        self._anchor = rows[accepted]
        return Outcome(accepted, (*kept, self._anchor), logits)

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
        """One call of a loop, everything it emits.

        Raises:
            ValueError: `unsupported:` for stop sequences.
        """
        if stop_sequences:
            raise ValueError("unsupported: its loops look for stop sequences in text alone")
        given: dict[str, Any] = {
            "prompt_ids": list(tokens),
            "cache": self._caches,
            "max_new_tokens": max_tokens,
        }
        voice, longest = _Voice(guess, num_draft_tokens), num_draft_tokens
        start: tuple[Any, ...] = (self._target, _Tokenizer(eos_token_ids))
        if longest:
            given |= {"max_draft_tokens": longest, "on_round": voice.on_round}
        if longest == 0:
            made = greedy_generate(*start, logprobs=0, **given)
        elif self._strategy == "lookup":
            given |= {"long_draft_tokens": longest, "ngram_min": 1}
            with mock.patch.object(lookup, "NGramIndex", partial(_Index, voice)):
                made = lookup.lookup_generate(*start, **given)
        else:
            drafter = self._loaded[1]
            drafter.voice = voice
            given |= {"ctx_caches": drafter.make_ctx_cache(), "lookup_drafts": False}
            made = speculative_generate(*start, drafter, **given)
        if voice.drafted and not voice.asked:
            raise RuntimeError("the loop drafted without its drafter")
        return Generated(tuple(made.token_ids), voice.drafted, voice.accepted)

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        return state_of(self._caches)

    def fork(self, options: Options | None = None) -> MlxDsparkSession:
        """A session with copies of the caches; between rounds the target keeps nothing else."""
        twin = MlxDsparkSession(self._loaded, options or self._options)
        twin._caches, twin._anchor = copy.deepcopy(self._caches), self._anchor
        return twin

    def close(self) -> None:
        """Memory goes with the object."""


class _Tokenizer:
    """What the loops ask of a tokenizer."""

    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = list(eos_token_ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """No text is looked at."""
        del tokens
        return ""


def make_runtime() -> MlxDsparkRuntime:
    """The factory the command line names."""
    return MlxDsparkRuntime()


if __name__ == "__main__":
    serve(make_runtime())
