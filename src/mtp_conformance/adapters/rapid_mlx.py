"""rapid-mlx behind the protocol: its `mtp_generate_step`, alone in a process, one sequence.

The models are mlx-lm's classes with `dispatch_mtp_inject`'s head. K=0 is the same generator
with `max_k=0`, where every round is a plain step. It drafts for the next round before it hands
out the tokens of the last one, so a round is made by starting anew with the drafts of all
rounds so far; the target's caches are then looked at where its last token was handed out.
`mtp_forward` says injected drafts as one-hot logits, the head running in any case.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from rapid_mlx.spec_decode.mtp.dispatch import dispatch_mtp_inject
from rapid_mlx.spec_decode.mtp.generator import mtp_generate_step

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

_ROUNDS_BUDGET = 4096
_UNSUPPORTED = {
    "attn": "its patched forward looks for a recurrent layer's cache",
    "gdn-next": "it has no head for qwen3_next in this generator",
    "flash-next": "it quantises the head of qwen4_exp in groups of 64, and ours is 32 wide",
}
_NOTES = {
    "loading": "mlx-lm's loader; the head from a derived file, because rapid-mlx takes the norms "
    "and experts of a head file as converted for mlx",
    "drafting": "disable_auto_k=True, prompt_lookup_enabled=False",
    "plain": "max_k=0 with may_run_ahead saying no, so that its caches do not run ahead",
    "rounds": "played from the prompt again, since it drafts before it hands out tokens; K stays",
    "stops": "not taken: its stop_tokens end it at a draft alone, the rest is left to its caller",
    "head-state": "not offered: the head has drafted for the next round by then",
    "strategies": "it has one; its continuous-batching engine is another decoder, not driven here",
}


class RapidMlxRuntime:
    """Opens what mlx-lm loads and rapid-mlx gives a head."""

    def describe(self) -> Description:
        """The card."""
        offered = "stream", "guess", "drafts", "logits", "state"
        return Description(
            name="rapid-mlx",
            versions=versions_of("rapid-mlx", "mlx", "mlx-lm"),
            capabilities=frozenset(Capability(name) for name in offered),
            models=("gdn", "gdn-agree", "gdn-mtp2", "gdn-moe"),
            strategies=("snapshots",),
            head_rows=("draft",),
            max_draft_tokens=8,
            after_stop="block",
            notes=_NOTES,
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> RapidMlxSession:
        """A new session on the checkpoint, which is loaded once."""
        del options
        if model not in self.describe().models:
            raise ValueError(f"unsupported: {_UNSUPPORTED.get(model, 'a model unknown to it')}")
        if checkpoint.name.endswith("bfloat16") and model == "gdn-moe":
            raise ValueError("unsupported: mlx has gather_mm for float32 alone on the CPU")
        return RapidMlxSession(_load(checkpoint))


@functools.cache
def _load(checkpoint: Path) -> Any:
    model: Any = load_model(checkpoint)[0]
    kind = json.loads((checkpoint / "config.json").read_text())["model_type"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mtp.safetensors"
        mx.save_safetensors(str(file), _head(checkpoint / "model.safetensors"))
        if not dispatch_mtp_inject(model, kind, mtp_sidecar=file):
            raise RuntimeError("rapid-mlx refused the head")
        mx.eval(model.parameters())
    return model.language_model


def _head(file: Path) -> dict[str, mx.array]:
    """The head's weights as a converter for mlx writes them."""
    found: dict[str, mx.array] = {}
    weights: Any = mx.load(str(file))
    for name, array in weights.items():
        owner, _, part = name.partition(".mlp.experts.")
        if not name.startswith("mtp."):
            continue
        if not part:
            found[name] = array + 1 if array.ndim == 1 else array
        elif part == "gate_up_proj":
            gate, up = mx.split(array, 2, axis=1)
            found[f"{owner}.mlp.switch_mlp.gate_proj.weight"] = gate
            found[f"{owner}.mlp.switch_mlp.up_proj.weight"] = up
        else:
            found[f"{owner}.mlp.switch_mlp.{part}.weight"] = array
    return found


class _Scripted(Injection):
    """The drafts of all rounds, by where they are asked for."""

    def __init__(self, blocks: dict[int, list[int]]) -> None:
        super().__init__()
        self._blocks = blocks

    def block(self, index: int, k: int) -> list[int]:
        """The drafts of the round that starts at an emitted token; of none yet, token 0."""
        return self._blocks.get(index, [0] * k)


class _Watched:
    """The model with injected drafts in place of its head's, and its logits seen."""

    def __init__(self, model: Any, k: int, injection: Injection, prompt_length: int) -> None:
        self._model, self._k, self._injection = model, k, injection
        self._prompt_length = prompt_length
        self.caches = make_prompt_cache(model)
        self.logits: mx.array | None = None
        self.asked: dict[int, int] = {}  # drafts asked for, by the first one's place
        self._block: list[int] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        result = self._model(*args, **options)
        logits = result[0] if isinstance(result, tuple) else result
        if self._k == 0 or logits.shape[1] == self._k + 1:
            self.logits = logits
        return result

    def mtp_forward(
        self, hidden: Any, tokens: Any, caches: Any, return_hidden: bool = False
    ) -> Any:
        """The head's pass; while the prompt is run it is no draft."""
        logits, after = self._model.mtp_forward(hidden, tokens, caches, return_hidden=True)
        held = max(int(cache.offset) for cache in self.caches if hasattr(cache, "keys"))
        if held >= self._prompt_length:
            index = held - self._prompt_length + 1
            done = self.asked.get(index, 0)
            if not done:
                self._block = self._injection.block(index, self._k)
            self.asked[index] = done + 1
            self._injection.note(1)
            if self._block is not None:
                row = mx.arange(logits.shape[-1]) == self._block[done]
                logits = mx.broadcast_to(row, logits.shape).astype(mx.float32)
        return (logits, after) if return_hidden else logits


@over_after_failure
class RapidMlxSession(GeneratorSession):
    """A session over rapid-mlx's generator."""

    def __init__(self, model: Any) -> None:
        super().__init__(self._tokens)
        self._model = model
        self._watched: Any = None
        self._blocks: dict[int, list[int]] = {}
        self._count = 1

    def _tokens(
        self, prompt: Sequence[int], k: int, max_tokens: int, injection: Injection, _: Ends
    ) -> Iterator[Emitted]:
        self._watched = watched = _Watched(self._model, k, injection, len(prompt))
        tokens = mtp_generate_step(
            mx.array(list(prompt)),
            watched,
            max_tokens=max_tokens,
            prompt_cache=watched.caches,
            max_k=k,
            disable_auto_k=True,
            prompt_lookup_enabled=False,
            may_run_ahead=lambda: False,
        )
        for token, _, stands in tokens:
            yield int(token), bool(stands)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        self._blocks, self._count = {}, 1
        return self._with_logits(super().prefill(tokens))

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        if not drafts and not self._blocks:
            self._count += 1
            return self._with_logits(super().round(drafts))
        depths = {len(block) for block in self._blocks.values()}
        if depths - {len(drafts)} or (self._count > 1 and not depths):
            raise ValueError("unsupported: rapid-mlx's generator keeps the K it started with")
        self._blocks[self._count] = list(drafts)
        injection = _Scripted(self._blocks)
        self.close()
        self._running = self._start(self._prompt, len(drafts), _ROUNDS_BUDGET, injection, Ends())
        next(self._running)
        emitted: list[int] = []
        for _ in self._blocks:
            emitted.clear()
            for token, stands in self._running:
                emitted.append(token)
                if not stands:
                    break
        if any(self._watched.asked.get(index) != len(drafts) for index in self._blocks):
            raise ValueError("unsupported: rapid-mlx drafts no more tokens than its caches hold")
        self._count += len(emitted)
        return self._with_logits(Outcome(len(emitted) - 1, tuple(emitted)))

    def _with_logits(self, outcome: Outcome) -> Outcome:
        logits = self._watched.logits[0].astype(mx.float32)
        rows = logits if self._watched._k else logits[-1:]
        return Outcome(outcome.accepted, outcome.tokens, rows)

    def state(self) -> dict[str, mx.array]:
        """See the protocol."""
        return state_of(self._watched.caches)


def make_runtime() -> RapidMlxRuntime:
    """The factory the command line names."""
    return RapidMlxRuntime()


if __name__ == "__main__":
    serve(make_runtime())
