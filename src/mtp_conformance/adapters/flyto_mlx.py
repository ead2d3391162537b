"""flyto-mlx: the MTP of its omlx fork inside mlx-lm's `GenerationBatch`, which it patches.

Models are loaded by mlx-lm after `apply_mlx_lm_mtp_patch` and `set_mtp_active`, as its engines do.
`generate` is a `BatchGenerator`, with stops of its own. A round is a `GenerationBatch` at the same
place: without a draft its `next`, with one `next` on an MTP state that holds it in place of the
head's, until that cycle's tokens are out. The model is handed over in a wrapper that shows the
logits of a pass, and whose `mtp_forward` says what is injected.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, PromptProcessingBatch, generation_stream
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from omlx.patches.mlx_lm_mtp import (
    apply_mlx_lm_mtp_patch,
    batch_generator,
    set_mtp_active,
    stamp_model_mtp_active,
)

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import Injection, over_after_failure, versions_of
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve

_MODELS = ("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe")
_MAX_K = 1
_ENDLESS = 1 << 20


class FlytoMlxRuntime:
    """Opens models of its Qwen3.5 families."""

    def describe(self) -> Description:
        """The card."""
        offered = ("STREAM", "GUESS", "DRAFTS", "LOGITS", "STATE", "FORK")
        return Description(
            name="flyto-mlx",
            versions=versions_of("flyto-mlx", "mlx-lm", "mlx"),
            capabilities=frozenset(Capability[name] for name in offered),
            models=_MODELS,
            strategies=("native-mtp",),
            max_draft_tokens=_MAX_K,
            after_stop="block",
            notes={
                "after stop": "not shown by this adapter: a sequence that ends leaves the batch",
                "settings": "stamp_model_mtp_active turns MTP on for a model; its drafting has no "
                "other condition than one sequence a batch",
                "start": "with drafts its loop takes one plain step after the prompt",
                "frontier": "rounds read the token it has sampled and not yet run",
                "head-state": "not offered: its head's rows are never rewound, by design",
                "attn": "mlx-lm's qwen3_5 cannot run without a linear-attention layer",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> FlytoMlxSession:
        """A new session; a checkpoint is loaded once a process."""
        if model not in _MODELS:
            raise ValueError(f"unsupported: its text lane has no MTP head for {model}")
        if model == "gdn-moe" and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return FlytoMlxSession(_load(checkpoint), options)


@cache
def _load(checkpoint: Path) -> Any:
    if not apply_mlx_lm_mtp_patch():
        raise RuntimeError("its patches of mlx-lm did not apply")
    set_mtp_active(True)
    model = load_model(checkpoint)[0]
    if not batch_generator._model_has_mtp_module(model):
        raise RuntimeError("the model came without its MTP head")
    return model


class _Model:
    """A model that keeps its last logits, and whose head says what is injected."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.logits = mx.zeros((1, 1, 1))
        self.injection, self.prompt_length = Injection(), 0
        self.watch: Callable[[], None] = lambda: None  # called after every pass
        self._caches: Any = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._model(*args, **kwargs)
        self.logits = made[0] if isinstance(made, tuple) else made
        self._caches = kwargs["cache"]
        self.watch()
        return made

    def mtp_forward(self, hidden: Any, ids: Any, caches: Any) -> Any:
        logits = self._model.mtp_forward(hidden, ids, caches)
        held = next(int(c.offset.item()) for c in self._caches if hasattr(c, "offset"))
        given = self.injection.block(held - self.prompt_length + 1, 1)
        if given is not None:
            logits = (mx.arange(logits.shape[-1]) == given[0])[None, None].astype(logits.dtype)
        return logits


@over_after_failure
class FlytoMlxSession:
    """One sequence; rounds keep a `GenerationBatch`."""

    def __init__(self, model: Any, options: Options) -> None:
        self._plain_model = model
        self._model: Any = _Model(model)
        self._options = options
        self._batch: Any = None
        self._head: Any = None

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt; the batch samples the first token and does not run it yet."""
        stamp_model_mtp_active(self._model, False)
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
        stamp_model_mtp_active(self._model, bool(drafts))
        if not drafts:
            with mx.stream(generation_stream):
                batch.next()
            return Outcome(0, (self._anchor,), self._model.logits[0])
        if len(drafts) > _MAX_K:
            raise ValueError("unsupported: a verify cycle of this runtime takes one draft")
        rows = self._model.logits[0, -1] * 0  # of the draft's own scores, unread when greedy
        draft = drafts[0]
        state = batch_generator._MtpState(
            uid=batch.uids[0],
            mtp_cache=self._head,
            next_main=batch._next_tokens.astype(mx.uint32),
            draft_tok=mx.array([draft], mx.uint32),
            draft_id=draft,
            draft_lp=rows,
            draft_accept_lp=rows,
        )
        batch._omlx_mtp_state = state
        emitted: list[int] = []
        with mx.stream(generation_stream):
            while not emitted or state.queue:
                emitted += [response.token for response in batch.next()]
        if state.stats.cycles != 1:
            raise RuntimeError("the verify cycle did not take the draft")
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
        stamp_model_mtp_active(self._model, num_draft_tokens > 0)
        self._model.injection, self._model.prompt_length = Injection(guess), len(tokens)
        stops = [*([token] for token in eos_token_ids), *(list(stop) for stop in stop_sequences)]
        generator = BatchGenerator(
            self._model,
            stop_tokens=stops,
            prefill_step_size=self._options.prefill_step_size,
        )
        generator.insert([list(tokens)], max_tokens=[max_tokens])
        emitted: list[int] = []
        stats: Any = None

        def note() -> None:
            """Keep the counts of the state at hand, which is gone once the batch has ended."""
            nonlocal stats
            state = getattr(vars(generator)["_generation_batch"], "_omlx_mtp_state", None)
            stats = stats if state is None else state.stats

        self._model.watch = note
        finished = False
        while not finished:
            for response in generator.next_generated():
                emitted.append(response.token)
                finished = response.finish_reason is not None
        generator.close()
        if stats is None:
            return Generated(tuple(emitted), 0, 0)
        return Generated(tuple(emitted), stats.cycles, stats.draft_emits)

    def state(self) -> dict[str, mx.array]:
        """The target's caches."""
        return state_of(self._batch.prompt_cache)

    def fork(self, options: Options | None = None) -> FlytoMlxSession:
        """A session with copies of the batch's caches and lists."""
        twin = FlytoMlxSession(self._plain_model, options or self._options)
        if self._batch is not None:
            twin._batch, twin._head = copy.copy(self._batch), copy.deepcopy(self._head)
            twin._batch.model = twin._model
            for name in ("prompt_cache", "tokens", "uids", "_num_tokens", "_matcher_states"):
                setattr(twin._batch, name, copy.deepcopy(getattr(self._batch, name)))
        return twin

    def close(self) -> None:
        """Memory goes with the object."""
        self._batch = None


def make_runtime() -> FlytoMlxRuntime:
    """The factory the command line names."""
    return FlytoMlxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
