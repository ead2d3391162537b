"""The probe: whether a block of rows gives the bits its rows give one by one, here.

Per operation, data type and width 2..9, three draws: one input proves nothing, since kernels
differ in a few bytes and for some values only. The result depends on mlx's version and the
device; its fingerprint stands in the report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast

import mlx.core as mx
import numpy as np

from mtp_conformance.exactness import bits_equal

WIDTHS = tuple(range(2, 10))
DRAWS = 3
_SIZE, _HEADS, _KEYS, _EXPERTS = 256, 4, 37, 8
_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}

Draw = Callable[..., mx.array]
Operation = Callable[[mx.array, Draw], mx.array]
"""From rows x [1, T, 256] and a source of constants to [1, T, ...], row by row the same."""


@dataclass(frozen=True)
class Probe:
    """What was found.

    Attributes:
        device: mlx's default device, in words.
        mlx: version.
        equal: operation/dtype to width to whether all draws gave equal bits; None where the
            backend has no such kernel.
    """

    device: str
    mlx: str
    equal: Mapping[str, Mapping[int, bool | None]]

    @property
    def row_exact(self) -> bool:
        """Whether every operation the backend has is row-exact at every width."""
        return all(value is not False for row in self.equal.values() for value in row.values())

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of a SHA-256 over everything found."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, object]:
        """JSON values; widths as text."""
        table = {name: {str(w): v for w, v in row.items()} for name, row in self.equal.items()}
        return {"device": self.device, "mlx": self.mlx, "draws": DRAWS, "operations": table}


def _matmul(x: mx.array, draw: Draw) -> mx.array:
    return x @ draw("w", _SIZE, _SIZE)


def _matmul_one_row_batch(x: mx.array, draw: Draw) -> mx.array:
    return (x[:, :, None, :] @ draw("w", _SIZE, _SIZE)[None, None]).squeeze(2)


def _quantized(bits: int) -> Operation:
    def run(x: mx.array, draw: Draw) -> mx.array:
        w, scales, biases = _quantised(draw("w", _SIZE, _SIZE), bits)
        return mx.quantized_matmul(x, w, scales, biases, group_size=64, bits=bits)

    return run


def _first(draw: Draw) -> int:
    """Position of the first row of a call."""
    return cast("int", draw("first").item())


def _attention(x: mx.array, draw: Draw) -> mx.array:
    """Row t sees the keys up to its own; a single row sees the same number of keys."""
    length, first = x.shape[1], _first(draw)
    keys, values = (draw(n, 1, _HEADS, _KEYS + 9, 64)[:, :, : first + length] for n in "kv")
    queries = x.reshape(1, length, _HEADS, 64).swapaxes(1, 2)
    out = mx.fast.scaled_dot_product_attention(
        queries, keys, values, scale=0.125, mask="causal" if length > 1 else None
    )
    return out.swapaxes(1, 2)


def _quantised(weight: mx.array, bits: int) -> tuple[mx.array, mx.array, mx.array]:
    w, scales, biases = mx.quantize(weight, group_size=64, bits=bits)
    return w, scales, biases


def _conv(x: mx.array, draw: Draw) -> mx.array:
    """A depthwise convolution of kernel 1 over rows: what differs is the kernel's row count."""
    return mx.conv1d(x, draw("c", _SIZE, 1, 1), groups=_SIZE)


def _rope(x: mx.array, draw: Draw) -> mx.array:
    rows = x.reshape(1, x.shape[1], _HEADS, 64).swapaxes(1, 2)
    offset = _first(draw)
    turned = mx.fast.rope(rows, 64, traditional=False, base=1e4, scale=1.0, offset=offset)
    return turned.swapaxes(1, 2)


def _gather(x: mx.array, draw: Draw) -> mx.array:
    chosen = (x[..., :2].astype(mx.float32) * 1e4).astype(mx.int32) % _EXPERTS
    return mx.gather_mm(
        x[:, :, None, None, :], draw("e", _EXPERTS, _SIZE, 32), rhs_indices=mx.abs(chosen)
    )


def _gather_quantized(bits: int) -> Operation:
    def run(x: mx.array, draw: Draw) -> mx.array:
        chosen = mx.abs((x[..., :2].astype(mx.float32) * 1e4).astype(mx.int32) % _EXPERTS)
        w, scales, biases = _quantised(draw("e", _EXPERTS, 32, _SIZE), bits)
        rows = x[:, :, None, None, :]
        return mx.gather_qmm(rows, w, scales, biases, rhs_indices=chosen, group_size=64, bits=bits)

    return run


OPERATIONS: dict[str, Operation] = {
    "matmul": _matmul,
    "matmul as one-row batch": _matmul_one_row_batch,
    "quantized_matmul 4 bits": _quantized(4),
    "quantized_matmul 8 bits": _quantized(8),
    "gather_mm": _gather,
    "gather_qmm 4 bits": _gather_quantized(4),
    "gather_qmm 8 bits": _gather_quantized(8),
    "scaled_dot_product_attention": _attention,
    "rope": _rope,
    "rms_norm": lambda x, draw: mx.fast.rms_norm(x, draw("n", _SIZE), 1e-6),
    "softmax": lambda x, _: mx.softmax(x, axis=-1, precise=True),
    "logsumexp": lambda x, _: mx.logsumexp(x, axis=-1, keepdims=True),
    "sum": lambda x, _: x.sum(axis=-1, keepdims=True),
    "sigmoid": lambda x, _: mx.sigmoid(x),
    "exp": lambda x, _: mx.exp(x),
    "cos": lambda x, _: mx.cos(x),
    "depthwise conv1d": _conv,
}


def run_probe(
    operations: Mapping[str, Operation] = OPERATIONS,
    progress: Callable[[str], None] | None = None,
) -> Probe:
    """Probe mlx's default device.

    Args:
        operations: by name.
        progress: told the name of every operation before it is probed.
    """
    found: dict[str, dict[int, bool | None]] = {}
    for name, operation in operations.items():
        if progress is not None:
            progress(name)
        for dtype in _DTYPES:
            row = {width: _probe(operation, dtype, width) for width in WIDTHS}
            found[f"{name}/{dtype}"] = row
    device = mx.default_device().type.name
    return Probe(device, vars(mx)["__version__"], found)


@cache
def products_are_row_exact() -> bool:
    """Whether a product has the bits of its rows one by one here; the probe's part of a moment."""
    return run_probe({"matmul": OPERATIONS["matmul"]}).row_exact


def _probe(operation: Operation, dtype: str, width: int) -> bool | None:
    """Whether all draws give equal bits; None if the backend refuses the operation."""
    try:
        return all(_draw_equal(operation, dtype, width, seed) for seed in range(DRAWS))
    except (RuntimeError, ValueError):
        return None


def _draw_equal(operation: Operation, dtype: str, width: int, seed: int) -> bool:
    x = _values(f"x/{width}", seed, (1, width, _SIZE)).astype(_DTYPES[dtype])

    def constants(row: int) -> Draw:
        def draw(name: str, *shape: int) -> mx.array:
            if name == "first":
                return mx.array(_KEYS - 9 + row)
            return (_values(name, seed, shape) * 0.25).astype(_DTYPES[dtype])

        return draw

    block = operation(x, constants(0))
    rows = [operation(x[:, t : t + 1], constants(t)) for t in range(width)]
    return bits_equal(block, mx.concatenate(rows, axis=1)) is None


@cache
def _values(name: str, seed: int, shape: tuple[int, ...]) -> mx.array:
    key = np.frombuffer(hashlib.sha256(f"{name}/{seed}".encode()).digest()[:16], dtype="<u8")
    raw = np.asarray(np.random.Philox(key=key).random_raw(int(np.prod(shape))), np.uint64)
    unit = (raw >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0
    return mx.array(unit.astype(np.float32).reshape(shape))
