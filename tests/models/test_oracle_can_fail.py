"""A reference model that is wrong in one formula is not near the oracle, where it is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from reference_models import attention, checkpoint, gated_delta, moe, mtp, pooled
from reference_models.gated_delta import GatedDeltaNet
from reference_models.hyper import HyperConnection
from reference_models.norms import gated_rms_norm, rms_norm, silu
from reference_models.ple import NGramHash, PerLayerEmbedding
from reference_models.pooled import PooledIndex
from reference_models.rope import rotate
from tests.oracle import reference
from tests.oracle.compare import distances
from tests.oracle.models import write_model
from tests.oracle.stored import read

Patch = pytest.MonkeyPatch


def _no_one(x: mx.array, weight: mx.array, eps: float, groups: int = 1) -> mx.array:
    return rms_norm(x, weight - 1.0, eps, groups)


def _pairs_in_turn(x: mx.array, positions: mx.array, rotary_dim: int, theta: float) -> mx.array:
    order = mx.array([*range(0, rotary_dim, 2), *range(1, rotary_dim, 2)])
    turned = x[..., :rotary_dim][..., order]
    return rotate(mx.concatenate([turned, x[..., rotary_dim:]], -1), positions, rotary_dim, theta)


def _late_block(x: mx.array, positions: mx.array, rotary_dim: int, theta: float) -> mx.array:
    late = positions + 3 if x.shape[1] == 1 else positions  # pooled rows have one head
    return rotate(x, late, rotary_dim, theta)


def _softer_decay(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda self, a: plain(self, a) ** 0.99


def _louder(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda self, x, y: plain(self, x, 0.5 * y)


def _never_cut(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def rows(self: Any, history: mx.array) -> mx.array:
        return plain(self, mx.where(history == 256, 255, history))

    return rows


def _one_tap_short(self: Any, past: mx.array, length: int) -> mx.array:
    out = past[:, 1 : 1 + length] * self._conv[0]
    for j in range(1, self._config.ple_conv_kernel_size):
        start = j * self._config.ngram_size
        out = out + past[:, start : start + length] * self._conv[j]
    return out


def _silu_gated(x: mx.array, gate: mx.array, weight: mx.array, eps: float, act: Any) -> mx.array:
    del act
    return gated_rms_norm(x, gate, weight, eps, silu)


def _halved(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda self, queries, keys: 0.5 * plain(self, queries, keys)


MUTATIONS: dict[str, tuple[str, str, Callable[[Patch], None]]] = {
    "norm-without-one": (
        *("attn", "layers.0.keys"),
        lambda m: m.setattr(attention, "rms_norm", _no_one),
    ),
    "rope-pairs": (
        "attn",
        "layers.0.keys",
        lambda m: m.setattr(attention, "rotate", _pairs_in_turn),
    ),
    "conv-activation": (
        *("gdn", "layers.0.recurrent"),
        lambda m: m.setattr(gated_delta, "silu", lambda x: silu(x) * 0.999),
    ),
    "decay": (
        *("gdn", "layers.0.recurrent"),
        lambda m: m.setattr(GatedDeltaNet, "_decay", _softer_decay(vars(GatedDeltaNet)["_decay"])),
    ),
    "output-gate": (
        *("flash-next", "layers.1.conv"),
        lambda m: m.setattr(gated_delta, "gated_rms_norm", _silu_gated),
    ),
    "injection": (
        *("flash-next", "layers.1.conv"),
        lambda m: m.setattr(HyperConnection, "write", _louder(HyperConnection.write)),
    ),
    "router-sum": (
        *("gdn-moe", "layers.1.conv"),
        lambda m: m.setattr(moe, "top_k", lambda p, k: mx.argsort(-p, axis=-1)[..., 1 : k + 1]),
    ),
    "ngram-cut": (
        *("ple", "layers.1.ngram_rows"),
        lambda m: m.setattr(NGramHash, "__call__", _never_cut(NGramHash.__call__)),
    ),
    "ple-taps": (
        *("ple", "layers.1.ple_added"),
        lambda m: m.setattr(PerLayerEmbedding, "_convolve", _one_tap_short),
    ),
    "pooled-position": (
        *("qsa", "layers.1.pooled"),
        lambda m: m.setattr(pooled, "rotate", _late_block),
    ),
    "scores": (
        *("qsa", "layers.1.scores"),
        lambda m: m.setattr(PooledIndex, "_score", _halved(vars(PooledIndex)["_score"])),
    ),
    "head-join": (
        *("gdn", "head.logits"),
        lambda m: m.setattr(mtp, "rms_norm", lambda x, w, eps: rms_norm(x[..., ::-1], w, eps)),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_formula_is_seen(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """The quantity the formula makes is further off than it may be."""
    model, quantity, mutate = MUTATIONS[name]
    entry, due = read(model)
    target, head = checkpoint.read(write_model(model, tmp_path))
    mutate(monkeypatch)
    found = reference.trajectory(target, head, entry.tokens, entry.drafts)
    far = {d.name for d in distances(found, due, entry.sensitivity) if not d.within}
    assert quantity in far
