"""vmlx: its native MTP inside mlx-lm's `GenerationBatch`, which it patches when asked to.

Models are loaded by mlx-lm after `apply_mlx_lm_mtp_patch` and `set_mtp_active`, as its text lane
does. `generate` is a `BatchGenerator`, with stops of its own. A round is a `GenerationBatch` at
the same place: without drafts its `next`, with drafts `next` on an MTP state that holds them in
place of the head's chain, until that cycle's tokens are out. The model is handed over in a
wrapper that shows the logits of a pass, and whose `mtp_forward` says what is injected.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, PromptProcessingBatch, generation_stream
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from vmlx_engine.patches.mlx_lm_mtp import apply_mlx_lm_mtp_patch, batch_generator, set_mtp_active

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import Injection, over_after_failure, versions_of
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve

_MODELS = ("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe")
_MAX_K = 3
_ENDLESS = 1 << 20


class VmlxRuntime:
    """Opens models of its Qwen3.5 families."""

    def describe(self) -> Description:
        """The card."""
        offered = ("STREAM", "GUESS", "DRAFTS", "LOGITS", "STATE", "FORK")
        return Description(
            name="vmlx",
            versions=versions_of("vmlx", "mlx-lm", "mlx"),
            capabilities=frozenset(Capability[name] for name in offered),
            models=_MODELS,
            strategies=("native-mtp",),
            max_draft_tokens=_MAX_K,
            after_stop="block",
            notes={
                "after stop": "not shown by this adapter: a sequence that ends leaves the batch",
                "settings": "VMLX_NATIVE_MTP_DEPTH is K, VMLX_NATIVE_MTP_ADAPTIVE_DEPTH and "
                "VMLX_NATIVE_MTP_AR_SAFETY are 0, so that nothing decides not to draft; K=0 is "
                "its default, adaptive and without evidence, which stays autoregressive",
                "start": "with drafts its loop takes one plain step after the prompt",
                "frontier": "rounds read the token it has sampled and not yet run",
                "head-state": "not offered: its head's rows are never rewound, by design",
                "attn": "mlx-lm's qwen3_5 cannot run without a linear-attention layer",
                "qwen4_exp": "in its multimodal lane, not driven here",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> VmlxSession:
        """A new session; a checkpoint is loaded once a process."""
        if model not in _MODELS:
            raise ValueError(f"unsupported: its text lane has no MTP head for {model}")
        if model == "gdn-moe" and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return VmlxSession(_load(checkpoint), options)


@cache
def _load(checkpoint: Path) -> Any:
    if not apply_mlx_lm_mtp_patch():
        raise RuntimeError("its patches of mlx-lm did not apply")
    set_mtp_active(True)
    model = load_model(checkpoint)[0]
    if not batch_generator._model_has_mtp_module(model):
        raise RuntimeError("the model came without its MTP head")
    return model


def _decode_with(k: int) -> None:
    """Settings of the process for K drafts; it reads them when a batch starts."""
    settings = {"ADAPTIVE_DEPTH": "0", "DEPTH": str(k)} if k else {}
    for name in ("ADAPTIVE_DEPTH", "DEPTH"):
        os.environ.pop(f"VMLX_NATIVE_MTP_{name}", None)
    for name, value in {**settings, "AR_SAFETY": "0"}.items():
        os.environ[f"VMLX_NATIVE_MTP_{name}"] = value


class _Model:
    """A model that keeps its last logits, and whose head says what is injected."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.logits = mx.zeros((1, 1, 1))
        self.injection, self.prompt_length = Injection(), 0
        self.watch: Callable[[], None] = lambda: None  # called after every pass
        self._caches: Any = ()
        self._chain = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._model(*args, **kwargs)
        self.logits = made[0] if isinstance(made, tuple) else made
        self._caches, self._chain = kwargs["cache"], 0
        self.watch()
        return made

    def mtp_forward(self, hidden: Any, ids: Any, caches: Any, return_hidden: bool = False) -> Any:
        logits, out = self._model.mtp_forward(hidden, ids, caches, return_hidden=True)
        held = next(int(c.offset.item()) for c in self._caches if hasattr(c, "offset"))
        given = self.injection.block(held - self.prompt_length + 1 + self._chain, 1)
        self._chain += 1
        if given is not None:
            logits = (mx.arange(logits.shape[-1]) == given[0])[None, None].astype(logits.dtype)
        return (logits, out) if return_hidden else logits


@over_after_failure
class VmlxSession:
    """One sequence; rounds keep a `GenerationBatch`."""

    def __init__(self, model: Any, options: Options) -> None:
        self._plain_model = model
        self._model: Any = _Model(model)
        self._options = options
        self._batch: Any = None
        self._head: Any = None

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt; the batch samples the first token and does not run it yet."""
        _decode_with(0)
        processing = PromptProcessingBatch(
            self._model,
            [0],
            [make_prompt_cache(self._plain_model)],
            prefill_step_size=self._options.prefill_step_size,
            samplers=cast("Any", [None]),
            logits_processors=[[]],
            max_tokens=[_ENDLESS],
        )
        with mx.stream(generation_stream):
            self._batch = processing.generate([list(tokens)])
        self._head = self._plain_model.make_mtp_cache()
        return Outcome(0, (self._anchor,), self._model.logits[0, -1:])

    @property
    def _anchor(self) -> int:
        return int(self._batch._next_tokens.item())

    def round(self, drafts: Sequence[int]) -> Outcome:
        """One plain step, or one verify cycle."""
        batch = self._batch
        # So near to its end a request is not calibrated, which takes plain steps in between.
        batch.max_tokens = [batch._num_tokens[0] + 16]
        if not drafts:
            with mx.stream(generation_stream):
                batch.next()
            return Outcome(0, (self._anchor,), self._model.logits[0])
        rows = self._model.logits[0, -1] * 0  # of the drafts' own scores, unread when greedy
        state = batch_generator._MtpState(
            mtp_cache=self._head,
            next_main=batch._next_tokens.astype(mx.uint32),
            draft_toks=[mx.array([draft], mx.uint32) for draft in drafts],
            draft_lps=[rows for _ in drafts],
            draft_accept_lps=[rows for _ in drafts],
            depth=len(drafts),
            depth_ceiling=len(drafts),
        )
        batch._omlx_mtp_state = state
        emitted: list[int] = []
        with mx.stream(generation_stream):
            while not emitted or state.queue:
                emitted += [response.token for response in batch.next()]
        if state.stats.draft_tokens_proposed != len(drafts) or len(state.draft_toks) != len(drafts):
            raise RuntimeError("the verify cycle did not take the drafts")
        del batch._omlx_mtp_state
        batch._next_tokens, batch._next_logprobs = state.next_main, [rows]
        return Outcome(len(emitted) - 1, tuple(emitted), self._model.logits[0])

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
        """Decode by a `BatchGenerator` of one sequence."""
        _decode_with(num_draft_tokens)
        self._model.injection, self._model.prompt_length = Injection(guess), len(tokens)
        stops = [*([token] for token in eos_token_ids), *(list(stop) for stop in stop_sequences)]
        generator = BatchGenerator(
            self._model,
            stop_tokens=stops,
            prefill_step_size=self._options.prefill_step_size,
        )
        generator.insert([list(tokens)], max_tokens=[max_tokens])
        emitted: list[int] = []
        # After 128 tokens it takes some plain steps to calibrate, and starts a new state.
        phases: list[Any] = []

        def note() -> None:
            """Keep the counts of the state at hand, which is gone once the batch has ended."""
            state = getattr(vars(generator)["_generation_batch"], "_omlx_mtp_state", None)
            if state is not None and all(stats is not state.stats for stats in phases):
                phases.append(state.stats)

        self._model.watch = note
        finished = False
        while not finished:
            for response in generator.next_generated():
                emitted.append(response.token)
                finished = response.finish_reason is not None
        generator.close()
        drafted = sum(stats.draft_tokens_proposed for stats in phases)
        return Generated(tuple(emitted), drafted, sum(stats.draft_emits for stats in phases))

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        return state_of(self._batch.prompt_cache)

    def fork(self, options: Options | None = None) -> VmlxSession:
        """A session with copies of the batch's caches and lists."""
        twin = VmlxSession(self._plain_model, options or self._options)
        if self._batch is not None:
            twin._batch, twin._head = copy.copy(self._batch), copy.deepcopy(self._head)
            twin._batch.model = twin._model
            for name in ("prompt_cache", "tokens", "uids", "_num_tokens", "_matcher_states"):
                setattr(twin._batch, name, copy.deepcopy(getattr(self._batch, name)))
        return twin

    def close(self) -> None:
        """Memory goes with the object."""
        self._batch = None


def make_runtime() -> VmlxRuntime:
    """The factory the command line names."""
    return VmlxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
