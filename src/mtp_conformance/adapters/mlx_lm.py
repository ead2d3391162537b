"""mlx-lm's speculative decoding with a separate draft model behind the protocol.

Entry points: `mlx_lm.generate.speculative_generate_step` with its `prompt_cache`, and
`generate_step` for K=0. Target and draft model are wrapped: the target to keep its logits, the
draft model to count and, for given drafts, to answer with one-hot logits after its own pass.

A round is one call of `speculative_generate_step` on the session's caches with the anchor as its
prompt, closed after the round, which is when it rewinds. A plain step is `generate_step` with no
token to emit, so that it does not run ahead. On hybrids `speculative_generate_step` refuses to
start, and everything with drafts is unsupported with its message.

    mtp-conformance smoke --model attn --runtime-cmd "python -m mtp_conformance.adapters.mlx_lm"
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import (
    Emitted,
    Ends,
    GeneratorSession,
    Injection,
    versions_of,
)
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from mtp_conformance.stdio import serve

_REFUSED = "Speculative decoding requires"


class MlxLmRuntime:
    """Opens the text families mlx-lm opens; it drafts for the attention-only one."""

    def describe(self) -> Description:
        """See the protocol."""
        offered = ("stream", "guess", "drafts", "logits", "state", "fork")
        return Description(
            name="mlx-lm",
            versions=versions_of("mlx-lm", "mlx"),
            capabilities=frozenset(map(Capability, offered)),
            models=("attn", "gdn", "gdn-agree", "gdn-mtp2", "gdn-moe", "gdn-next"),
            after_stop="block",
            notes={
                "attn": "mlx-lm cannot run qwen3_5 without a recurrent layer: the adapter writes "
                "a qwen3 folder from the checkpoint's weights, queries without their gate.",
                "drafting": "The draft model is the target's first two layers with its readout.",
                "hybrids": "K=0 only: speculative_generate_step wants trimmable caches.",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> MlxLmSession:
        """A new session; models are loaded once a process."""
        if model in ("gdn-moe", "gdn-next") and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return MlxLmSession(*_load(model, checkpoint), options)


@cache
def _load(model: str, checkpoint: Path) -> tuple[Any, Any]:
    """Target and draft model; a hybrid is handed its target for both."""
    if model != "attn":
        target = load_model(checkpoint)[0]
        return target, target
    with tempfile.TemporaryDirectory() as name:
        folder = _write_qwen3(checkpoint, Path(name))
        target = load_model(folder)[0]
        draft = load_model(folder, strict=False, model_config={"num_hidden_layers": 2})[0]
    return target, draft


def _write_qwen3(checkpoint: Path, folder: Path) -> Path:
    """A qwen3 checkpoint with the weights of an attention-only qwen3_5 one."""
    config = json.loads((checkpoint / "config.json").read_text())["text_config"]
    config |= {"model_type": "qwen3", "rope_theta": config.pop("rope_parameters")["rope_theta"]}
    (folder / "config.json").write_text(json.dumps(config))
    stored: Any = mx.load(str(checkpoint / "model.safetensors"))
    weights: dict[str, mx.array] = {}
    for name, array in stored.items():
        if name.startswith("mtp."):
            continue
        short, width = name.replace("language_model.", ""), array.shape[-1]
        weights[short] = array
        if name.endswith("q_proj.weight"):  # rows by head: the query, then its gate
            heads = array.reshape(config["num_attention_heads"], 2, -1, width)
            weights[short] = heads[:, 0].reshape(-1, width)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder


class _Seen:
    """A model whose last logits are kept."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.layers = model.layers

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        self.logits: mx.array = self._model(tokens, cache=cache)
        return self.logits


class _Drafting(_Seen):
    """A draft model that says the given drafts where there are any."""

    def __init__(self, model: Any, start: int, injection: Injection) -> None:
        super().__init__(model)
        self._start, self._injection = start, injection

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        logits = super().__call__(tokens, cache)
        index = cache[0].offset - self._start  # of the token these logits are for
        if index < 0:
            return logits  # the prompt
        self._injection.note(1)
        given = self._injection.block(index, 1)
        if given is None:
            return logits
        one_hot = (mx.arange(logits.shape[-1]) == given[0]).astype(logits.dtype)
        return mx.broadcast_to(one_hot, logits.shape)


class MlxLmSession(GeneratorSession):
    """One sequence; the caches hold every emitted token but the anchor."""

    def __init__(self, target: Any, draft: Any, options: Options) -> None:
        super().__init__(self._begin)
        self._target, self._draft, self._options = _Seen(target), draft, options
        self._models = target, draft
        self._caches: list[Any] = []
        self._drafts_cache: list[Any] = []

    def _begin(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, _: Ends
    ) -> Generator[Emitted, None, None]:
        """The stream of `generate`, and of a round from the anchor on."""
        self._caches, self._drafts_cache = map(make_prompt_cache, self._models)
        yield from self._decode(prompt, k, max_tokens, injection)

    def _decode(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection
    ) -> Generator[Emitted, None, None]:
        target: Any = self._target
        step: dict[str, Any] = {"max_tokens": max_tokens}
        step["prefill_step_size"] = self._options.prefill_step_size
        tokens: Any = mx.array(list(prompt), mx.uint32)
        if k == 0:
            plain = generate_step(tokens, target, prompt_cache=self._caches, **step)
            yield from ((int(token), False) for token, _ in plain)
            return
        start = self._drafts_cache[0].offset if hasattr(self._drafts_cache[0], "offset") else 0
        drafting: Any = _Drafting(self._draft, start + len(prompt), injection)
        both = self._caches + self._drafts_cache
        running = speculative_generate_step(
            tokens, target, drafting, num_draft_tokens=k, prompt_cache=both, **step
        )
        try:
            yield from ((int(token), bool(drafted)) for token, _, drafted in running)
        except ValueError as error:
            if str(error).startswith(_REFUSED):
                raise ValueError(f"unsupported: {error}") from error
            raise
        finally:
            running.close()  # rewinds

    def _plain_step(self, tokens: Sequence[int]) -> Outcome:
        for _ in self._decode(tokens, 0, 0, Injection()):
            raise RuntimeError("generate_step emitted a token more than it was allowed")
        logits: Any = self._target.logits[:, -1]
        self._anchor = int(logits.argmax(-1).item())
        return Outcome(0, (self._anchor,), logits)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt through the target, and through a draft model of its own."""
        self._caches, self._drafts_cache = map(make_prompt_cache, self._models)
        if self._models[0] is not self._draft:
            self._draft(mx.array([list(tokens)]), cache=self._drafts_cache)
        return self._plain_step(tokens)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """One round of the speculative loop, or a plain step."""
        if not drafts:
            return self._plain_step([self._anchor])
        injection = Injection(drafts)
        running = self._decode([self._anchor], len(drafts), len(drafts) + 1, injection)
        emitted: list[int] = []
        for token, stands in running:
            emitted.append(token)
            if not stands:
                break
        running.close()
        if injection.drafted != len(drafts):
            raise RuntimeError(f"asked for {injection.drafted} of {len(drafts)} drafts")
        self._anchor = emitted[-1]
        return Outcome(len(emitted) - 1, tuple(emitted), self._target.logits[0])

    def state(self) -> dict[str, mx.array]:
        """The target's caches as copies."""
        return state_of(self._caches)

    def fork(self, options: Options | None = None) -> MlxLmSession:
        """A session on copies of the caches."""
        twin = MlxLmSession(*self._models, options or self._options)
        twin._anchor = self._anchor
        twin._caches, twin._drafts_cache = copy.deepcopy((self._caches, self._drafts_cache))
        return twin


def make_runtime() -> MlxLmRuntime:
    """The factory the command line names."""
    return MlxLmRuntime()


if __name__ == "__main__":
    serve(make_runtime())
