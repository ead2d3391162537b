"""The recurrence's kernel: taken only where it has mlx-lm's bits. `tests.gpu` runs it on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.gated_delta import gated_delta_ops

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session
from mtp_decoder.qwen import recurrence
from mtp_decoder.qwen.load import load
from tests.decoder.helpers import PROMPT

Run = Callable[[recurrence.Step], tuple[mx.array, mx.array]]
SHAPE = (2, 4, 32, 16, mx.float32, mx.float32)


class Kernel:
    """mlx-lm's operations in the kernel's place, right or with one bit changed."""

    def __init__(self, *, right: bool, refused: bool = False) -> None:
        self._right = right
        self._refused = refused
        self.calls = 0

    def __call__(self, step: recurrence.Step) -> tuple[mx.array, mx.array]:
        """See `recurrence.run`."""
        self.calls += 1
        if self._refused:
            raise RuntimeError("no kernel image is available")
        y, state = gated_delta_ops(*step)
        if not self._right:
            bits = state.view(mx.uint32)
            bits[..., -1, -1] ^= 1
            state = bits.view(mx.float32)
        return y, state


@pytest.fixture(params=[True, False], ids=["right", "wrong"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A device that has the kernel."""
    made = Kernel(right=request.param)
    monkeypatch.setattr(recurrence, "run", made)
    monkeypatch.setattr(recurrence, "has_kernel", lambda *_: True)
    recurrence.has_the_bits.cache_clear()
    yield made
    recurrence.has_the_bits.cache_clear()


def test_has_the_bits(kernel: Kernel, request: pytest.FixtureRequest) -> None:
    """One bit of one state condemns it; a shape is asked about once."""
    right = request.node.callspec.id == "right"
    assert [recurrence.has_the_bits(*SHAPE) for _ in range(3)] == [right] * 3
    assert kernel.calls == 1


def test_a_batch_is_a_shape(kernel: Kernel) -> None:
    """Another number of sequences is asked about anew: another kernel may sum their rows."""
    mixer = Mixer()
    for batch in (1, 2, 2):
        step = recurrence.random_step(2, 4, 32, 16, mx.float32, mx.float32, batch=batch)
        recurrence.update(mixer, step.q, step.k, step.v, step.beta, step.beta, step.state)
    assert recurrence.has_the_bits.cache_info().misses == 2
    assert recurrence.has_the_bits.cache_info().hits == 1


def test_one_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that refuses the kernel is left to mlx-lm's operations."""
    monkeypatch.setattr(recurrence, "run", Kernel(right=True, refused=True))
    monkeypatch.setattr(recurrence, "has_kernel", lambda *_: True)
    recurrence.has_the_bits.cache_clear()
    step = recurrence.random_step(2, 4, 32, 16, mx.float32, mx.float32)
    mixer = Mixer()
    y, state = recurrence.update(mixer, step.q, step.k, step.v, step.beta, step.beta, step.state)
    assert (y.shape, state.shape) == (step.v.shape, step.state.shape)
    recurrence.has_the_bits.cache_clear()


def test_zeros_of_two_signs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are equal numbers and other bits, so that such a kernel is none of mlx-lm's."""

    def negated(step: recurrence.Step) -> tuple[mx.array, mx.array]:
        y, state = zeros(*step)
        return -y, state

    def zeros(*step: mx.array) -> tuple[mx.array, mx.array]:
        return mx.zeros(step[2].shape), mx.zeros(step[5].shape)

    monkeypatch.setattr(recurrence, "run", negated)
    monkeypatch.setattr(recurrence, "gated_delta_ops", zeros)
    recurrence.has_the_bits.cache_clear()
    assert not recurrence.has_the_bits(*SHAPE)
    recurrence.has_the_bits.cache_clear()


def test_a_session(
    kernel: Kernel, request: pytest.FixtureRequest, checkpoint: Callable[..., Any]
) -> None:
    """Every layer of a verify pass and its rewind take it if it has the bits, and none if not."""
    target = load(checkpoint("gdn")).target
    session, plain = Session(target), Session(target)
    for made in (session, plain):
        made.prefill(PROMPT)
    before = kernel.calls
    done = session.round(drafts=[1, 2, 3])
    asked = 1 if before == 0 else 0
    if request.node.callspec.id == "right":
        linear = sum(hasattr(layer, "slots") for layer in target.layers)
        assert kernel.calls - before >= 2 * linear  # the pass and its rewind
    else:
        assert kernel.calls - before == asked
    for _ in range(done.accepted + 1):
        plain.round(drafts=())
    assert require_equal(session.state(), plain.state(), what="one-token steps") > 0


@pytest.mark.parametrize(
    ("key_dim", "dim", "fits"),
    [(128, 128, True), (30, 32, False), (256, 32, False), (32, 6, False)],
)
def test_shapes_it_can_be_asked_for(
    key_dim: int, dim: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CUDA alone, and as its lanes divide a row."""
    q, v = mx.zeros((1, 2, 1, key_dim)), mx.zeros((1, 2, 1, dim))
    assert not recurrence.has_kernel(q, v)
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
    assert recurrence.has_kernel(q, v) is fits


@pytest.mark.parametrize("given", [True, False], ids=["state", "none"])
def test_without_a_state(kernel: Kernel, *, given: bool) -> None:
    """No state yet is one of zeros; what is read has a row a position."""
    step = recurrence.random_step(2, 4, 32, 16, mx.bfloat16, mx.bfloat16, positions=5)
    mixer = Mixer()
    state = step.state if given else None
    arguments = (step.q, step.k, step.v, step.beta, step.beta, state)
    y, after = recurrence.update(mixer, *arguments)
    assert (y.shape, after.shape) == ((1, 5, 4, 16), (1, 4, 16, 32))
    other = step.state if given else mx.zeros_like(step.state)
    again = recurrence.update(mixer, *arguments[:-1], other)
    assert all(mx.array_equal(one, two).item() for one, two in zip((y, after), again, strict=True))


class Mixer:
    """What `update` reads of mlx-lm's module."""

    A_log = mx.zeros(4)
    dt_bias = mx.zeros(4)
    training = False
