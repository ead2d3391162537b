"""dflash-mlx: its generator with a draft backend of ours, and its target operations for rounds.

Models are opened by `load_target_bundle`. `generate` is `stream_dflash_generate`, whose
`DraftBackend` is public: this one is the runtime's own, unless drafts are injected. K=0 is
`stream_baseline_generate`. The generator empties its caches when it ends, so a round is made of
the operations its loop calls: `verify_block` and `restore_after_acceptance`. The strategy `tree` is
verify_mode ddtree, whose verify pass is another one.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from dflash_mlx.draft_backend import EagerDraftBackend
from dflash_mlx.engine.ddtree import (
    build_flat_ddtree,
    build_flat_tree_inputs,
    follow_verified_tree,
)
from dflash_mlx.engine.events import TokenEvent
from dflash_mlx.engine.fallback import stream_baseline_generate
from dflash_mlx.model import DFlashDraftModel, DFlashDraftModelArgs
from dflash_mlx.runtime import VerifyConfig, stream_dflash_generate
from dflash_mlx.runtime.context import build_offline_runtime_context
from dflash_mlx.runtime.loading import load_target_bundle

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

_MODELS = ("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe", "gdn-next")
_EXPERTS = ("gdn-moe", "gdn-next")
_MODES = {"tape": "dflash", "tree": "ddtree"}
_MAX_K = 8
_TAP = (0, 2)


class DflashMlxRuntime:
    """Opens models of the Qwen families with the runtime's own loader."""

    def describe(self) -> Description:
        """The card."""
        offered = ("STREAM", "GUESS", "DRAFTS", "LOGITS", "STATE", "FORK")
        return Description(
            name="dflash-mlx",
            versions=versions_of("dflash-mlx", "mlx-lm", "mlx"),
            capabilities=frozenset(Capability[name] for name in offered),
            models=_MODELS,
            strategies=tuple(_MODES),
            max_draft_tokens=_MAX_K,
            after_stop="block",
            notes={
                "after stop": "not shown: its generator drops its caches when it ends",
                "head": "it drives no MTP head; the checkpoint's is not read",
                "drafting": "its DFlash drafter with random weights of one seed, hardly ever right",
                "tape": "verify_mode dflash",
                "heads": "the folder is derived: query and key heads are repeated to one for each "
                "value head (the same function), as its tape on the CPU fails on grouped heads",
                "tree": "verify_mode ddtree with one candidate at each depth: a chain",
                "stops": "its generator takes end-of-text ids, no stop sequences",
                "attn": "mlx-lm's qwen3_5 cannot run without a linear-attention layer",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> DflashMlxSession:
        """A new session; target and drafter are made once a process."""
        if model not in _MODELS:
            raise ValueError(f"unsupported: {model} is of no family it has target operations for")
        if model in _EXPERTS and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return DflashMlxSession(_load(checkpoint), options, _MODES[options.strategy or "tape"])


def _with_equal_heads(checkpoint: Path, folder: Path) -> mx.array:
    """Write the same model with query and key heads repeated to one for each value head.

    Returns:
        Which channels of its convolution are not repetitions.
    """
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    keys, values = text["linear_num_key_heads"], text["linear_num_value_heads"]
    width, wide = text["linear_key_head_dim"], text["linear_value_head_dim"]
    each, size = values // keys, keys * width

    def repeat(rows: mx.array, per_head: int) -> mx.array:
        heads = mx.repeat(rows.reshape(keys, per_head, -1), each, axis=0)
        return heads.reshape(-1, *rows.shape[1:])

    def grouped(rows: mx.array, sizes: Sequence[int], is_key: Sequence[bool]) -> mx.array:
        rows = rows.reshape(keys, -1, rows.shape[-1])
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
        parts = [
            mx.repeat(part, each, axis=0) if key else part.reshape(values, -1, rows.shape[-1])
            for part, key in zip(mx.split(rows, ends, axis=1), is_key, strict=True)
        ]
        return mx.concatenate(parts, axis=1).reshape(-1, rows.shape[-1])

    weights: Any = mx.load(str(folder / "model.safetensors"))
    for name, rows in weights.items():
        if name.endswith(("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight")):
            q, k, v = mx.split(rows, [size, 2 * size], axis=0)
            weights[name] = mx.concatenate([repeat(q, width), repeat(k, width), v], axis=0)
        elif name.endswith("linear_attn.in_proj_qkvz.weight"):
            sizes = (width, width, each * wide, each * wide)
            weights[name] = grouped(rows, sizes, (True, True, False, False))
        elif name.endswith("linear_attn.in_proj_ba.weight"):
            weights[name] = grouped(rows, (each, each), (False, False))
    text["linear_num_key_heads"] = values
    (folder / "config.json").write_text(json.dumps(config))
    mx.eval(weights)
    (folder / "model.safetensors").unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    first = mx.arange(2 * values * width) // width % each == 0
    flags = cast("list[bool]", first.tolist())
    channels = [i for i, is_first in enumerate(flags) if is_first]
    return mx.array([*channels, *(2 * values * width + i for i in range(values * wide))])


@cache
def _load(checkpoint: Path) -> tuple[Any, Any, mx.array]:
    """The target's bundle, a drafter, and the channels to show of the convolution's rows."""
    with tempfile.TemporaryDirectory() as folder:
        channels = _with_equal_heads(checkpoint, Path(folder))
        bundle = load_target_bundle(folder, lazy=False, verify_config=VerifyConfig())
    inner = bundle.target_ops.text_model(bundle.model)
    vocabulary, width = inner.embed_tokens.weight.shape
    arguments = DFlashDraftModelArgs(
        model_type="qwen3",
        hidden_size=width,
        num_hidden_layers=1,
        intermediate_size=width,
        num_attention_heads=2,
        rms_norm_eps=1e-6,
        vocab_size=vocabulary,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        rope_theta=10000.0,
        head_dim=16,
        tie_word_embeddings=False,
        num_target_layers=len(inner.layers),
        block_size=_MAX_K + 1,
        dflash_config={"target_layer_ids": list(_TAP)},
    )
    mx.random.seed(0)
    drafter = DFlashDraftModel(arguments)
    drafter.set_dtype(inner.embed_tokens.weight.dtype)
    return bundle, drafter, channels


class _Backend(EagerDraftBackend):
    """The runtime's drafting, unless drafts are injected.

    Each call's context has the rows of the tokens committed since the last one, which tells
    where in the stream its drafts belong.
    """

    def __init__(self, injection: Injection, k: int) -> None:
        self._injection, self._k = injection, k
        self._index = 0
        self.blocks: list[int] = []

    def _given(self, context: mx.array, block_len: int) -> list[int] | None:
        self._index = self._index + context.shape[1] if self._index else 1
        self.blocks.append(block_len - 1)
        return self._injection.block(self._index, block_len - 1)

    def advance_context(self, **kwargs: Any) -> None:
        # The runtime's copy index drafts this block.
        self._given(kwargs["draft_context"], self._k + 1)
        super().advance_context(**kwargs)

    def draft_greedy(self, **kwargs: Any) -> mx.array:
        given = self._given(kwargs["draft_context"], kwargs["block_len"])
        own = super().draft_greedy(**kwargs)
        return own if given is None else mx.array(given, own.dtype)

    def draft_with_topk(self, **kwargs: Any) -> tuple[mx.array, list[list[int]], Any]:
        given = self._given(kwargs["draft_context"], kwargs["block_len"])
        own, ids, values = super().draft_with_topk(**kwargs)
        if given is None:
            return own, ids, values
        return mx.array(given, own.dtype), [[draft] for draft in given], [[0.0] for _ in given]


@over_after_failure
class DflashMlxSession(GeneratorSession):
    """One sequence; rounds keep a list of the target's caches."""

    def __init__(self, loaded: Any, options: Options, mode: str) -> None:
        super().__init__(self._generator, takes_eos=True)
        self._loaded = loaded
        self._ops, self._model = loaded[0].target_ops, loaded[0].model
        self._options = options
        self._mode = mode
        self._caches: Any = self._ops.make_cache(self._model, enable_speculative_linear_cache=True)
        self._held = self._anchor = 0

    def _generator(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        """Tokens of its generator; of a cycle's tokens the first is no draft."""
        backend, self._caches = _Backend(injection, k), []
        given: dict[str, Any] = {
            "target_model": self._model,
            "target_ops": self._ops,
            "tokenizer": None,
            "prompt": "",
            "max_new_tokens": max_tokens,
            "prompt_tokens_override": list(prompt),
            "stop_token_ids": list(ends.eos_token_ids),
        }
        if k == 0:
            for event in stream_baseline_generate(**given):
                if isinstance(event, TokenEvent):
                    yield event.token_id, False
            return
        step = self._options.prefill_step_size
        context = build_offline_runtime_context(verify_mode=self._mode, prefill_step_size=step)
        given |= {"draft_model": self._loaded[1], "draft_backend": backend}
        noted, cycle = 0, 0
        for event in stream_dflash_generate(**given, block_tokens=k + 1, runtime_context=context):
            if isinstance(event, TokenEvent):
                done = event.cycles_completed
                injection.note(sum(backend.blocks[noted:done]))
                noted, before, cycle = max(noted, done), cycle, max(1, done)
                yield event.token_id, cycle == before

    def _forward(self, tokens: Sequence[int], **kwargs: Any) -> mx.array:
        ids, captured = mx.array([list(tokens)], mx.uint32), {i + 1 for i in _TAP}
        return self._ops.forward_with_hidden_capture(
            self._model, input_ids=ids, cache=self._caches, capture_layer_ids=captured, **kwargs
        )[0]

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt by the forward pass its prefill calls."""
        step, logits = self._options.prefill_step_size, mx.zeros((1, 1, 1))
        self._caches = self._ops.make_cache(self._model, enable_speculative_linear_cache=True)
        for start in range(0, len(tokens), step):
            logits = self._forward(tokens[start : start + step], logits_last_only=True)
        self._held = len(tokens)
        self._anchor = cast("int", mx.argmax(logits[0, -1]).item())
        return Outcome(0, (self._anchor,), logits[0])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Verify, accept and restore by the operations its loop calls; its plain step without."""
        if not drafts:
            logits = self._model(mx.array([[self._anchor]], mx.uint32), cache=self._caches)[0]
            self._held, self._anchor = self._held + 1, cast("int", mx.argmax(logits[-1]).item())
            return Outcome(0, (self._anchor,), logits)
        if self._mode == "ddtree":
            return self._tree_round(drafts)
        block = mx.array([[self._anchor, *drafts]], mx.uint32)
        self._ops.arm_rollback(self._caches, prefix_len=self._held)
        logits = self._ops.verify_block(
            target_model=self._model,
            verify_ids=block,
            target_cache=self._caches,
            capture_layer_ids={i + 1 for i in _TAP},
        )[0][0]
        rows = [int(row) for row in mx.argmax(logits, axis=-1)]
        right = [draft == row for draft, row in zip(drafts, rows, strict=False)]
        accepted = [*right, False].index(False)
        self._held += 1 + accepted
        self._ops.restore_after_acceptance(
            self._caches,
            target_len=self._held,
            acceptance_length=accepted,
            drafted_tokens=len(drafts),
        )
        self._anchor = rows[accepted]
        return Outcome(accepted, (*drafts[:accepted], self._anchor), logits)

    def _tree_round(self, drafts: Sequence[int]) -> Outcome:
        tree = build_flat_ddtree(
            top_token_ids_desc=[[draft] for draft in drafts],
            top_scores_desc=[[0.0] for _ in drafts],
            budget=len(drafts),
        )
        inputs = build_flat_tree_inputs(tree, root_token_id=self._anchor, prefix_len=self._held)
        logits = self._ops.verify_tree_block(
            target_model=self._model,
            tree_inputs=inputs,
            target_cache=self._caches,
            capture_layer_ids={i + 1 for i in _TAP},
        )[0][0]
        rows = [int(row) for row in mx.argmax(logits, axis=-1)]
        slots, self._anchor = follow_verified_tree(tree, rows)
        self._held += len(slots)
        self._ops.restore_after_tree_acceptance(self._caches, accepted_tree_indices=slots)
        accepted = len(slots) - 1
        return Outcome(accepted, (*drafts[:accepted], self._anchor), logits)

    def state(self) -> dict[str, mx.array]:
        """The target's caches, without the convolution rows of repeated heads."""
        found, kept = state_of(self._caches), self._loaded[2]
        return {name: a[..., kept] if name.endswith("conv") else a for name, a in found.items()}

    def fork(self, options: Options | None = None) -> DflashMlxSession:
        """A session with copies of the caches."""
        chosen = options or self._options
        twin = DflashMlxSession(self._loaded, chosen, _MODES[chosen.strategy or "tape"])
        twin._caches = copy.deepcopy(self._caches)
        twin._held, twin._anchor = self._held, self._anchor
        return twin


def make_runtime() -> DflashMlxRuntime:
    """The factory the command line names."""
    return DflashMlxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
