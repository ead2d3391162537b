"""mlx-beam's verify cycle behind the protocol.

Entry points, as its engine's worker uses them for one row: `PrimingPromptBatch` prefills and
hands over to a `SpeculativeGenerationBatch` bound to a `Speculator`, whose `next` is one cycle.
The proposer is its own `BundledHeadProposer`; given drafts go in through the `choose` that
`propose` takes, so that the head's history advances as with drafts of its own. The depth is
held at K by `Regulator.fixed`.

The batch returns a token with the cycle that caches it. A round here gives out the sampled
token, which the caches do not hold yet, so that it is the protocol's anchor.

    mtp-conformance smoke --model gdn --runtime-cmd "python -m mtp_conformance.adapters.mlx_beam"
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

# The runtime is in an environment of its own.
from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_beam._vendor.mlx_lm.generate import StopSequences, greedy_sampler
from mlx_beam._vendor.mlx_lm.utils import load_model
from mlx_beam.engine import exact
from mlx_beam.engine.kv import KVPolicy, make_request_cache
from mlx_beam.engine.priming import PrimingPromptBatch
from mlx_beam.engine.proposer import BundledHeadProposer, load_bundled_head
from mlx_beam.engine.speculative import SpeculativeGenerationBatch, Speculator

from mtp_conformance.adapters.caches import state_of
from mtp_conformance.adapters.generating import Injection, over_after_failure, versions_of
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve

_MAX_DRAFT_TOKENS = 8
_ROUNDS_BUDGET = 4096
_ROW = 0


class MlxBeamRuntime:
    """Opens what mlx-beam opens, with the checkpoint's head as proposer."""

    def describe(self) -> Description:
        """See the protocol."""
        offered = ("stream", "guess", "drafts", "logits", "state", "head-state")
        return Description(
            name="mlx-beam",
            versions=versions_of("mlx-beam", "mlx"),
            capabilities=frozenset(map(Capability, offered)),
            models=("attn", "gdn", "gdn-agree", "gdn-moe", "gdn-next"),
            strategies=("block", "kernels", "positions"),
            head_rows=("target",),
            max_draft_tokens=_MAX_DRAFT_TOKENS,
            after_stop="emitted",
            notes={
                "loading": "The target is loaded from the folder as it is. load_bundled_head gets "
                "a package written from it, the head's tensors in a part of its own with "
                "experts stacked; it quantizes the head to 4 bits.",
                "drafting": "Regulator.fixed is K: the regulator parks after losing cycles else.",
                "after stop": "The caches are those in the last response, without the head's.",
                "mtp2": "Not listed: the head takes one layer.",
            },
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> MlxBeamSession:
        """A new session; target and head are loaded once a process."""
        if model in ("gdn-moe", "gdn-next") and checkpoint.name.endswith("bfloat16"):
            raise ValueError("unsupported: mlx's CPU backend has gather_mm for float32 only")
        return MlxBeamSession(*_load(checkpoint), options)


@cache
def _load(checkpoint: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Target, head and what is said of the head."""
    model: Any = load_model(checkpoint)[0]
    exact.install(model)  # changes nothing outside `exact_forward`
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored: Any
        said: Any
        stored, said = mx.load(str(checkpoint / "model.safetensors"), return_metadata=True)
        convention = "mlx" if said.get("format") == "mlx" else "hf"
        part = {"file": "mtp.safetensors", "norm_convention": convention}
        (folder / "manifest.json").write_text(json.dumps({"parts": {"mtp": part}}))
        config = json.loads((checkpoint / "config.json").read_text())
        config |= {"extras": {"manifest": "manifest.json"}}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {name: array for name, array in stored.items() if name.startswith("mtp.")}
        mx.save_safetensors(str(folder / "mtp.safetensors"), _stack_experts(tensors))
        head, info = load_bundled_head(model, folder)
    return model, head, info


def _stack_experts(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """Experts under the names the target's layer class has for them."""
    at = "mtp.layers.0.mlp."
    parts = ("gate_proj", "up_proj", "down_proj")
    if f"{at}experts.gate_up_proj" in tensors:
        gate, up = mx.split(tensors.pop(f"{at}experts.gate_up_proj"), 2, axis=-2)
        stacks = [gate, up, tensors.pop(f"{at}experts.down_proj")]
    elif f"{at}experts.0.up_proj.weight" in tensors:
        count = sum(name.endswith(".up_proj.weight") and ".experts." in name for name in tensors)
        stacks = [
            mx.stack([tensors.pop(f"{at}experts.{e}.{part}.weight") for e in range(count)])
            for part in parts
        ]
    else:
        return tensors
    stacked = zip(parts, stacks, strict=True)
    return {**tensors, **{f"{at}switch_mlp.{part}.weight": array for part, array in stacked}}


@over_after_failure
class MlxBeamSession:
    """One row in a batch of its own."""

    def __init__(self, model: Any, head: Any, info: dict[str, Any], options: Options) -> None:
        self._model, self._head, self._options = model, head, options
        self._proposer: Any = BundledHeadProposer(model, head, _MAX_DRAFT_TOKENS, info)
        self._native = self._proposer.propose
        self._proposer.propose = self._propose
        self._injection, self._emitted = Injection(), 0
        self._rows: list[mx.array] = []
        self._ended: Any = None

    def _propose(
        self, uid: int, hidden: Any, token: Any, choose: Any = None, depth: int | None = None
    ) -> mx.array:
        """The proposer's `propose`, told what to choose where there are given drafts."""
        k = _MAX_DRAFT_TOKENS if depth is None else depth
        given = self._injection.block(self._emitted, k)
        self._injection.note(k)
        if given is None:
            return self._native(uid, hidden, token, choose, k)
        return self._native(uid, hidden, token, lambda _, i: mx.array(given[i : i + 1]), k)

    def _begin(
        self, tokens: Sequence[int], k: int | None, max_tokens: int, stops: Any, see: bool
    ) -> None:
        """Prefill; without K, the batch has no speculator."""
        speculator = Speculator(self._proposer, _MAX_DRAFT_TOKENS, lambda _uid, _tokens: True)
        speculator.mode = self._options.strategy or "block"
        self._speculator, self._ended = speculator, None
        self._proposer.begin(_ROW, len(tokens), None)
        prompt = PrimingPromptBatch(
            self._model,
            [_ROW],
            [make_request_cache(self._model, KVPolicy())],
            prefill_step_size=self._options.prefill_step_size,
            samplers=[greedy_sampler],
            logits_processors=[[self._see] if see else []],
            stop_sequences=[StopSequences(stops)],
            max_tokens=[max_tokens],
            generation_batch=SpeculativeGenerationBatch.bound(None if k is None else speculator),
        )
        if len(tokens) > 1:
            prompt.prompt([list(tokens[:-1])])
        self._batch: Any = prompt.generate([list(tokens[-1:])])
        self._set_depth(k or 0)

    def _set_depth(self, k: int) -> None:
        self._speculator.regulator.fixed = k

    def _see(self, _: mx.array, logits: mx.array) -> mx.array:
        """A logits processor that keeps the logits and changes nothing."""
        self._rows.append(logits)
        return logits

    def _anchor(self) -> int:
        return int(self._batch._next_tokens.item())

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt; the sampled token is emitted."""
        self._rows = []
        self._begin(tokens, 0, _ROUNDS_BUDGET, None, see=True)
        self._injection = Injection()
        return Outcome(0, (self._anchor(),), self._rows[-1])

    def round(self, drafts: Sequence[int]) -> Outcome:
        """One cycle of the batch, or one plain step."""
        self._rows, injection = [], self._injection
        before = injection.drafted
        if drafts:
            injection.say_next(drafts)
        self._set_depth(len(drafts))
        kept = [response.token for response in self._batch.next()][1:]
        if injection.drafted - before != len(drafts):
            raise RuntimeError(f"asked for {injection.drafted - before} of {len(drafts)} drafts")
        rows = self._rows + self._rows[-1:] * (len(drafts) + 1 - len(self._rows))
        return Outcome(len(kept), (*kept, self._anchor()), mx.concatenate(rows))

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
        """Decode until the batch itself ends the row."""
        injection = self._injection = Injection(guess)
        stops = [[token] for token in eos_token_ids] + [list(stop) for stop in stop_sequences]
        self._begin(tokens, num_draft_tokens or None, max_tokens, stops, see=False)
        emitted: list[int] = []
        responses: Any = []
        accepted, finish = 0, None
        while finish is None:
            self._emitted = len(emitted) + 1  # the first draft comes after the anchor
            responses = self._batch.next()
            emitted += [response.token for response in responses]
            accepted += len(responses) - 1
            finish = responses[-1].finish_reason
        self._ended = responses[-1].prompt_cache
        return Generated(tuple(emitted), injection.drafted, accepted)

    def state(self) -> dict[str, mx.array]:
        """The row's caches, and the head's history with pairs that wait fed in."""
        if self._ended is not None:
            return state_of(self._ended)
        found = state_of(self._batch.extract_cache(0))
        history = self._proposer.snapshot(_ROW)
        if history is None:
            return {**found, "head.0.offset": mx.array(0, mx.int32)}
        keys, values, _ = history
        found |= {"head.0.keys": mx.array(keys), "head.0.values": mx.array(values)}
        hidden = mx.array(self._batch._hidden_slot)
        offset = mx.array(keys.shape[2], mx.int32)
        return {**found, "head.0.offset": offset, "head.frontier.hidden": hidden}

    def close(self) -> None:
        """Memory goes with the object."""


def make_runtime() -> MlxBeamRuntime:
    """The factory the command line names."""
    return MlxBeamRuntime()


if __name__ == "__main__":
    serve(make_runtime())
