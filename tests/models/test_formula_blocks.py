"""Feed-forward, routed experts and hyper-connections against their formulas."""

from dataclasses import replace

import numpy as np
import pytest

from reference_models.config import HybridConfig
from reference_models.hyper import HyperConnection
from reference_models.mlp import DenseMLP
from reference_models.moe import SparseMoE
from reference_models.weights import Weights
from tests.models.formulas import (
    TINY,
    TOLERANCE,
    Array,
    drawn,
    gap,
    mlp,
    numbers,
    random,
    rms_norm,
    sigmoid,
    silu,
    weight,
)

LENGTH = 6


def test_dense() -> None:
    """The dense block is down(silu(gate x) * up x)."""
    weights = drawn(DenseMLP.tensors(32, 48))
    x = random(1, LENGTH, 32)
    parts = (weight(weights, f"{n}_proj.weight") for n in ("gate", "up", "down"))
    assert gap(DenseMLP(weights)(x)[0], mlp(numbers(x)[0], *parts)) < TOLERANCE


def _routed(c: HybridConfig, w: Weights, x: Array) -> Array:
    logits = x @ weight(w, "gate.weight").T
    share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    gate_up, down = weight(w, "experts.gate_up_proj"), weight(w, "experts.down_proj")
    shared = (weight(w, f"shared_expert.{n}_proj.weight") for n in ("gate", "up", "down"))
    out = sigmoid(x @ weight(w, "shared_expert_gate.weight").T) * mlp(x, *shared)
    half = c.moe_intermediate_size
    for t in range(len(x)):
        best = np.argsort(-share[t])[: c.num_experts_per_tok]
        total = share[t, best].sum() if c.norm_topk_prob else 1.0
        for e in best:
            y = mlp(x[t], gate_up[e, :half], gate_up[e, half:], down[e])
            out[t] += share[t, e] / total * y
    return out


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize("k", [1, 2, 6])
def test_experts(k: int, renormalised: bool) -> None:
    """The k likeliest experts are summed by their share, and the shared one by its gate."""
    config = replace(TINY, num_experts=6, num_experts_per_tok=k, norm_topk_prob=renormalised)
    weights, x = drawn(SparseMoE.tensors(config)), random(1, LENGTH, config.hidden_size, seed=4)
    expected = _routed(config, weights, numbers(x)[0])
    assert gap(SparseMoE(config, weights)(x)[0], expected) < TOLERANCE


def test_expert_calls() -> None:
    """Every pass through routed experts is counted once."""
    config = replace(TINY, num_experts=6)
    moe = SparseMoE(config, drawn(SparseMoE.tensors(config)))
    for _ in range(3):
        moe(random(1, LENGTH, config.hidden_size))
    assert moe.experts.calls == 3


HYPER = replace(TINY, hc_count=2)


def _normed(w: Weights, x: Array) -> Array:
    return rms_norm(x, weight(w, "hc_norm.weight"), HYPER.hc_count)


def test_reading() -> None:
    """A block reads the mean over the streams of its gated, normed residual."""
    weights = drawn(HyperConnection.tensors(HYPER, injects=True))
    x = random(1, LENGTH, HYPER.wide_size)
    n = _normed(weights, numbers(x)[0])
    low = silu(n @ weight(weights, "input_mix_weight_down.weight").T / HYPER.hc_count)
    mix = sigmoid(low @ weight(weights, "input_mix_weight_up.weight").T)
    expected = (mix * n).reshape(LENGTH, HYPER.hc_count, -1).mean(1)
    assert gap(HyperConnection(HYPER, weights).read(x)[0], expected) < TOLERANCE


def test_writing() -> None:
    """A block's output is added to every stream by that stream's own share."""
    weights = drawn(HyperConnection.tensors(HYPER, injects=True))
    x, y = random(1, LENGTH, HYPER.wide_size), random(1, LENGTH, HYPER.hidden_size, seed=1)
    n = _normed(weights, numbers(x)[0])
    share = 2 * sigmoid(n @ weight(weights, "block_inject_weight.weight").T / HYPER.hc_count)
    expected = numbers(x)[0] + (share[..., None] * numbers(y)[0][:, None]).reshape(LENGTH, -1)
    assert gap(HyperConnection(HYPER, weights).write(x, y)[0], expected) < TOLERANCE


def test_the_final_mixer_injects_nothing() -> None:
    """The mixer before the output projection has no weights to inject with."""
    both = set(HyperConnection.tensors(HYPER, injects=True))
    final = set(HyperConnection.tensors(HYPER, injects=False))
    assert both - final == {"block_inject_weight.weight"}
