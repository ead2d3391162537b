"""vllm-mlx behind the protocol: `MLLMBatchGenerator`, one request, with `install_mtp_mllm`.

That is its multimodal lane; its text lane has no drafting. K=0 is the batch generator without
the installation. It verifies the next drafts before it hands out a round's tokens, so a round is
made by starting anew with the drafts of all rounds so far, and caches are copied where the head
is asked (K=0: where a step begins), which is where they hold all tokens but the anchor. Its
first step is always plain: it is given the last prompt token, the prefill the ones before.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model
from vllm_mlx.mllm_batch_generator import MLLMBatchGenerator, MLLMBatchRequest, install_mtp_mllm
from vllm_mlx.patches.qwen3_5_mtp import inject_mtp_support

from mtp_conformance.adapters.caches import components
from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    versions_of,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from mtp_conformance.stdio import serve

_ROUNDS_BUDGET = 4096
_NOTES = {
    "after stop": "not shown: caches are copied where the head is asked, and none is at an end",
    "loading": "mlx-lm's loader for the target; the head with its inject_mtp_support, from a "
    "derived folder that has mtp/weights.safetensors",
    "drafting": "install_mtp_mllm; one draft a round is all it has",
    "rounds": "played from the prompt again, since it verifies before it hands out tokens; K stays",
    "prefill": "the last prompt token is fed as its first step, which never drafts",
    "head-state": "not offered: its head keeps no cache (mtp_cache=None)",
}


class VllmMlxRuntime:
    """Opens qwen3_5 as mlx-lm loads it."""

    def describe(self) -> Description:
        """The card."""
        offered = "stream", "guess", "drafts", "logits", "state"
        return Description(
            name="vllm-mlx",
            versions=versions_of("vllm-mlx", "mlx", "mlx-lm", "mlx-vlm"),
            capabilities=frozenset(Capability(name) for name in offered),
            models=("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe"),
            strategies=("replay",),
            head_rows=("target",),
            max_draft_tokens=1,
            after_stop="block",
            notes=_NOTES,
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> VllmMlxSession:
        """A new session on the checkpoint, which is loaded once."""
        del options
        if model not in self.describe().models:
            raise ValueError(f"unsupported: vllm-mlx's multimodal lane has no head for {model}")
        if checkpoint.name.endswith("bfloat16") and model == "gdn-moe":
            raise ValueError("unsupported: mlx has gather_mm for float32 alone on the CPU")
        return VllmMlxSession(_load(checkpoint))


@functools.cache
def _load(checkpoint: Path) -> Any:
    model: Any = load_model(checkpoint)[0]
    weights: Any = mx.load(str(checkpoint / "model.safetensors"))
    head = {name: array for name, array in weights.items() if name.startswith("mtp.")}
    config = json.loads((checkpoint / "config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mtp").mkdir()
        mx.save_safetensors(str(Path(folder) / "mtp" / "weights.safetensors"), head)
        if not inject_mtp_support(model, folder, config):
            raise RuntimeError("vllm-mlx refused the head")
        mx.eval(model.parameters())
    return model.language_model


class _Scripted(Injection):
    """The drafts of all rounds, by where they are asked for."""

    def __init__(self, blocks: dict[int, list[int]]) -> None:
        super().__init__()
        self._blocks = blocks

    def block(self, index: int, k: int) -> list[int]:
        """The drafts of the round that starts at an emitted token; of none yet, token 0."""
        return self._blocks.get(index, [0] * k)


class _Watched:
    """The model with injected drafts in place of its head's, its logits and caches seen.

    Attributes:
        states: arrays of the caches when they held all of so many emitted tokens but the last.
        rows: logits of the pass that began there.
    """

    def __init__(self, model: Any, k: int, injection: Injection, prompt: Sequence[int]) -> None:
        self._model, self._k, self._injection, self._prompt = model, k, injection, prompt
        self._caches: list[Any] | None = None
        self._index = 0
        self.states: dict[int, dict[str, mx.array]] = {}
        self.rows: dict[int, mx.array] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, cache: Any = None, **options: Any) -> Any:
        if self._caches is None:  # the prefill: it is to "emit" the last token of the prompt
            self._caches = []
            logits = self._model(tokens, cache=cache, **options)
            last = mx.arange(logits.shape[-1]) == self._prompt[-1]
            return mx.broadcast_to(last, logits.shape).astype(mx.float32)
        self._caches = cache
        if self._k == 0:
            self._stand()
        result = self._model(tokens, cache=cache, **options)
        logits = result[0] if isinstance(result, tuple) else result
        if logits.shape[1] == self._k + 1:
            self.rows[self._index] = logits[0].astype(mx.float32)
            self._injection.note(self._k)  # here, as it drafts once more than it verifies
        return result

    def mtp_forward(
        self, hidden: Any, tokens: Any, cache: Any = None, mtp_cache: Any = None
    ) -> Any:
        """The head's pass."""
        self._stand()
        logits = self._model.mtp_forward(hidden, tokens, cache, mtp_cache)
        block = self._injection.block(self._index, 1)
        if block is not None:
            said = mx.arange(logits.shape[-1]) == block[0]
            logits = mx.broadcast_to(said, logits.shape).astype(mx.float32)
        return logits

    def _stand(self) -> None:
        """Copy the caches, named by how many tokens are emitted."""
        caches = self._caches or []
        held = max(int(c.offset.max().item()) for c in caches if hasattr(c, "keys"))
        self._index = held - len(self._prompt) + 1
        self.states[self._index] = {
            f"layers.{index}.{name}": mx.array(array)
            for index, cache in enumerate(caches)
            for name, array in components(_Row(cache)).items()
        }
        mx.eval(self.states[self._index])


class _Row:
    """A cache of a batch of one, its offset a number."""

    def __init__(self, cache: Any) -> None:
        if hasattr(cache, "keys"):
            self.keys, self.values = cache.keys, cache.values
            self.offset = int(cache.offset.max().item())
        else:
            self.cache = list(cache.cache)


class VllmMlxSession(GeneratorSession):
    """A session over vllm-mlx's batch generator."""

    def __init__(self, model: Any) -> None:
        super().__init__(self._tokens, takes_eos=True)
        self._model = model
        self._watched: Any = None
        self._blocks: dict[int, list[int]] = {}
        self._count = 1

    def _tokens(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, ends: Ends
    ) -> Iterator[Emitted]:
        if len(prompt) < 2:
            raise ValueError("unsupported: a prompt of one token has none before the first step")
        self._watched = watched = _Watched(self._model, k, injection, prompt)
        generator = MLLMBatchGenerator(
            SimpleNamespace(language_model=watched), None, enable_vision_cache=False
        )
        if k:
            install_mtp_mllm(generator, watched, num_draft_tokens=1)
        ids = mx.array([list(prompt[:-1])])
        request = MLLMBatchRequest(
            0, "0", "", max_tokens=max_tokens + 1, temperature=0.0, input_ids=ids
        )
        generator.insert([request])
        first = True
        while True:
            responses = generator.next()
            if k and generator.get_mtp_stats()["errors"]:
                raise RuntimeError("vllm-mlx swallowed an error of draft or verify")
            for response in responses:
                if response.finish_reason == "error":
                    raise RuntimeError("vllm-mlx failed; its log says how")
                if not first:
                    yield int(response.token), response.from_draft
                first = False
            generator.stop_tokens = set(ends.eos_token_ids)  # not for the prompt's last token
            if not responses or responses[-1].finish_reason:
                return

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        self._blocks, self._count = {}, 1
        return self._with_logits(super().prefill(tokens), 0)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        start = self._count
        if not drafts and not self._blocks:
            self._count += 1
            return self._with_logits(super().round(drafts), start)
        if len(drafts) != 1 or (start > 1 and not self._blocks):
            raise ValueError("unsupported: vllm-mlx drafts one token in every round, or never")
        self._blocks[start] = list(drafts)
        self.close()
        script = _Scripted(self._blocks)
        self._running = self._start(self._prompt, len(drafts), _ROUNDS_BUDGET, script, Ends())
        next(self._running)
        emitted: list[int] = []
        for _ in self._blocks:
            emitted.clear()
            for token, stands in self._running:
                emitted.append(token)
                if not stands:
                    break
        if not set(self._blocks) <= set(self._watched.states):
            raise RuntimeError("vllm-mlx did not ask for the drafts of every round")
        self._count += len(emitted)
        return self._with_logits(Outcome(len(emitted) - 1, tuple(emitted)), start)

    def _with_logits(self, outcome: Outcome, start: int) -> Outcome:
        return Outcome(outcome.accepted, outcome.tokens, self._watched.rows[start])

    def state(self) -> dict[str, mx.array]:
        """See the protocol."""
        return dict(self._watched.states[self._count])


def make_runtime() -> VllmMlxRuntime:
    """The factory the command line names."""
    return VllmMlxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
