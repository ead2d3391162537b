# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# (PyTorch is in the oracle's environment alone)
"""The trajectory of transformers' models, read from their caches and, on the way, by hooks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers.cache_utils import DynamicCache

from tests.oracle.trajectory import CHAIN, PARTS, Array, Recorder, Trajectory, padded


def numbers(tensor: Any) -> Array:
    """A tensor as NumPy's."""
    return tensor.detach().numpy()


@dataclass
class Cuts:
    """How close the choices of a run were: the smallest distance at each kind of cut."""

    selection: list[float] = field(default_factory=list)
    routing: list[float] = field(default_factory=list)

    def smallest(self) -> dict[str, float]:
        """The smallest of each kind that there was."""
        kinds = {"selection": self.selection, "routing": self.routing}
        return {name: min(found) for name, found in kinds.items() if found}


def make_cache(target: Any) -> Any:
    """An empty cache of a target."""
    if hasattr(target, "make_cache"):
        return target.make_cache()
    return DynamicCache(config=target.config)


def forward(target: Any, tokens: list[int], cache: Any) -> Any:
    """Logits [T, V] of tokens after what the cache holds."""
    ids = torch.tensor([tokens])
    if hasattr(target, "make_cache"):
        return target(ids, cache)[0]
    return target(ids, cache=cache, use_cache=True).logits[0]


def trajectory(
    target: Any, head: Any, tokens: list[int], chain: list[int] | None, eos: int
) -> tuple[Trajectory, list[int], Cuts]:
    """Everything `oracle.trajectory` names that this model has.

    Args:
        target: as `hugging_face.open_folder` returns it.
        head: likewise.
        tokens: T tokens of a prompt.
        chain: what the head is given after its last pair; None for its own K-1 drafts.
        eos: what the n-gram history holds before the first token.

    Returns:
        The trajectory, the K-1 drafts that were fed back, and how close the choices were.
    """
    cuts = Cuts()
    found = {"logits": numbers(forward(target, tokens, make_cache(target)))}
    cache = make_cache(target)
    parts = [numbers(forward(target, tokens[start:end], cache)) for start, end in PARTS]
    found["logits.parts"] = np.concatenate(parts)
    steps, hidden = _steps(target, tokens, eos, cuts)
    of_head, drafts = _head(head, hidden, tokens, chain, cuts)
    return {**found, **steps, **of_head}, drafts, cuts


def _steps(target: Any, tokens: list[int], eos: int, cuts: Cuts) -> tuple[Trajectory, Any]:
    """The states, one token at a time, and the residuals [1, T, W] a head reads."""
    recorder, cache, hidden = Recorder(), make_cache(target), []
    layers = target.model.layers
    with ExitStack() as stack:
        last = layers[-1].register_forward_hook(lambda module, args, out: hidden.append(out))
        stack.callback(last.remove)
        watched = [
            stack.enter_context(watching(f"layers.{i}", layer, recorder, cuts))
            for i, layer in enumerate(layers)
        ]
        for token in tokens:
            recorder.take("logits.steps", numbers(forward(target, [token], cache)[0]))
            recorder.take("hidden", numbers(hidden[-1][0, 0]))
            for i, layer in enumerate(layers):
                take_state(f"layers.{i}", layer, cache.layers[i], recorder, eos)
    found = recorder.trajectory()
    for rows in watched:
        found |= rows(len(tokens))
    return found, torch.cat(hidden, dim=1)


def _head(
    head: Any, hidden: Any, tokens: list[int], chain: list[int] | None, cuts: Cuts
) -> tuple[Trajectory, list[int]]:
    """Pairs one at a time, then K drafts fed back."""
    recorder, cache, out = Recorder(), head.make_cache(), None
    with ExitStack() as stack:
        watched = [
            stack.enter_context(watching(f"head.{i}", layer, recorder, cuts))
            for i, layer in enumerate(head.layers)
        ]
        for i, token in enumerate(tokens[1:]):
            logits, out = head(hidden[:, i : i + 1], torch.tensor([[token]]), cache)
            recorder.take("head.logits", numbers(logits[0, 0]))
            for index, layer in enumerate(head.layers):
                take_state(f"head.{index}", layer, cache.layers[index], recorder, 0)
    found = recorder.trajectory()
    for rows in watched:
        found |= rows(len(tokens) - 1)
    chained, drafts = [found["head.logits"][-1]], []
    for j in range(CHAIN - 1):
        drafts.append(int(chained[-1].argmax()) if chain is None else chain[j])
        logits, out = head(out, torch.tensor([[drafts[-1]]]), cache)
        chained.append(numbers(logits[0, 0]))
    return {**found, "head.chain": np.stack(chained)}, drafts


def take_state(name: str, layer: Any, cache: Any, recorder: Recorder, eos: int) -> None:
    """Record what one layer's cache holds after one more token."""
    if hasattr(layer, "linear_attn"):
        _take_recurrence(name, layer, cache, recorder, eos)
        return
    for kind, part in (("keys", cache.keys), ("values", cache.values)):
        recorder.rows(f"{name}.{kind}", numbers(part[0].transpose(0, 1)))
    if hasattr(layer.self_attn, "indexer"):
        recorder.rows(f"{name}.index_keys", numbers(cache.indexer_keys[0]))


def _take_recurrence(name: str, layer: Any, cache: Any, recorder: Recorder, eos: int) -> None:
    """Slot 0 is the convolution, of whose Kc columns the oldest is never read again."""
    recorder.take(f"{name}.recurrent", numbers(cache.recurrent_states[0][0].transpose(1, 2)))
    window = numbers(cache.conv_states[0][0, :, 1:].T)
    recorder.rows(f"{name}.conv", window, len(window))
    if getattr(layer, "ple", None) is not None:
        rows = numbers(cache.conv_states[1][0].T)
        recorder.rows(f"{name}.ple_conv", rows, len(rows))
        ids = numbers(cache.conv_states[2][0])
        recorder.rows(f"{name}.ngram", ids, len(ids), eos)


@contextmanager
def watching(
    name: str, layer: Any, recorder: Recorder, cuts: Cuts
) -> Generator[Callable[[int], Trajectory]]:
    """Take what a layer computes on the way and no cache keeps.

    Yields:
        What gives the selections, scores and pooled rows taken, for a number of tokens.
    """
    selected: list[Array] = []
    index, indexer = IndexSpy(), None
    with ExitStack() as stack:
        if getattr(layer, "ple", None) is not None:
            table = layer.ple.ple_embedding.ngram_embedding
            hooks = [
                table.register_forward_pre_hook(
                    lambda module, args: recorder.take(f"{name}.ngram_rows", numbers(args[0][0, 0]))
                ),
                layer.ple.register_forward_hook(
                    lambda module, args, out: recorder.take(f"{name}.ple_added", numbers(out[0, 0]))
                ),
            ]
            for hook in hooks:
                stack.callback(hook.remove)
        if hasattr(layer.mlp, "gate"):
            gate = layer.mlp.gate
            routed = gate.register_forward_hook(
                lambda module, args, out: cuts.routing.append(
                    _gap(out[0][0].softmax(-1), gate.top_k)
                )
            )
            stack.callback(routed.remove)
        if hasattr(layer, "self_attn") and hasattr(layer.self_attn, "indexer"):
            indexer = layer.self_attn.indexer
            stack.enter_context(_spied(indexer, index))
            chose = indexer.register_forward_hook(
                lambda module, args, out: selected.append(numbers(out[0, 0, 0]))
            )
            stack.callback(chose.remove)

        def rows(length: int) -> Trajectory:
            if indexer is None:
                return {}
            found = index.rows(len(selected))
            keep = indexer.block_topk
            cuts.selection.extend(
                _gap(torch.tensor(r), keep) for r in index.scores if len(r) > keep
            )
            return {f"{name}.{k}": v for k, v in found.items()} | {
                f"{name}.selected": padded(selected, length, 0)
            }

        yield rows


def _gap(scores: Any, k: int) -> float:
    """How far the k-th largest lies above the next."""
    ordered = scores.sort(descending=True).values
    return float(ordered[k - 1] - ordered[k])


class IndexSpy(TorchFunctionMode):
    """Inside the indexer: the scores that are ranked, and the pooled rows they are made from."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[Array] = []
        self.pooled: Array | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.topk:
            self.scores.append(numbers(args[0]))
        if func is torch.matmul:
            self.pooled = numbers(args[1].transpose(-1, -2))
        return func(*args, **(kwargs or {}))

    def rows(self, queries: int) -> Trajectory:
        """Scores [queries, blocks], the first queries without a block, and pooled rows."""
        assert self.pooled is not None
        blind: list[Array] = [self.scores[0][:0]] * (queries - len(self.scores))
        return {
            "scores": padded(blind + self.scores, len(self.pooled), -1.0),
            "pooled": self.pooled,
        }


@contextmanager
def _spied(indexer: Any, spy: IndexSpy) -> Generator[None]:
    """Run an indexer under a spy while this lasts."""
    plain = indexer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with spy:
            return plain(*args, **kwargs)

    indexer.forward = forward
    try:
        yield
    finally:
        del indexer.forward
