"""The recurrence's kernel against mlx-lm's operations, bit by bit, by shape, type and positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import mlx.core as mx
from mlx_lm.models.gated_delta import gated_delta_ops

from mtp_conformance.exactness import compare_states
from mtp_decoder.qwen import recurrence
from tests.gpu.rows import Row

SHAPES = ((16, 16, 128, 128), (16, 32, 128, 128), (4, 8, 64, 128), (2, 2, 32, 32), (1, 3, 8, 16))
"""Key heads, value heads and their sizes; the first are those of Qwen3-Next and Qwen3.5."""
DTYPES = (mx.float32, mx.bfloat16, mx.float16)
POSITIONS = (1, 2, 4, 9, 33)


def bits() -> Iterator[Row]:
    """A row a shape, type and number of positions."""
    for shape, dtype, positions in product(SHAPES, DTYPES, POSITIONS):
        step = recurrence.random_step(*shape, dtype, dtype, positions=positions)
        found = compare_states(
            dict(zip(("read", "state"), recurrence.run(step), strict=True)),
            dict(zip(("read", "state"), gated_delta_ops(*step), strict=True)),
        )
        yield {
            "part": "recurrence",
            "shape": list(shape),
            "dtype": str(dtype).rpartition(".")[2],
            "positions": positions,
            "compared": found.elements,
            "differing": ", ".join(found.differing),
            "ok": not found.differing and found.elements > 0,
        }
