"""mlx-lm's Qwen layers with rows computed as in one-token steps, cheaper than one by one.

On CUDA a product of one row is the same kernel whether it comes alone or in a batch, and so is
attention of one query. A verify pass can therefore keep its rows together everywhere but in
attention itself and in quantised products, which are asked for row by row. Measured:
`docs/gpu.md`. Elsewhere nobody has shown that a batch of rows keeps the bits, and
`mtp_decoder.row_exact` runs every layer row by row.

The modules are mlx-lm's own: a twin of each layer shares its weights, and only its products,
its attention and its experts are replaced.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import scaled_dot_product_attention
from mlx_lm.models.qwen3_next import Qwen3NextAttention

from mtp_decoder.row_exact import joined, rows_of

_EXPERTS = "switch_mlp"


class OneRowProducts:
    """A dense projection whose rows are a batch of one-row products."""

    def __init__(self, linear: nn.Linear) -> None:
        self._linear = linear

    def __call__(self, x: mx.array) -> mx.array:
        """X [B, T, H] to [B, T, N]."""
        if x.shape[1] == 1:
            return self._linear(x)
        return one_row_products(x, self._linear["weight"])


def one_row_products(x: mx.array, weight: mx.array) -> mx.array:
    """X [B, T, H] times weight [N, H], transposed, as B * T products of one row: [B, T, N]."""
    # MLX folds a batch into the rows of one product wherever it can: at once if the weight is a
    # matrix, and in the kernel's dispatch if the rows lie together. Axes made by indexing with None
    # escape both; a reshape would not. `tests.gpu` holds this on CUDA.
    return (x[:, :, None, :] @ weight.T[None, None])[:, :, 0]


class RowByRow:
    """A module that sees one row a call."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, *arrays: mx.array) -> mx.array:
        """Arrays [B, T, ...] to [B, T, ...]."""
        rows = zip(*(rows_of(array) for array in arrays), strict=True)
        return joined([self._module(*row) for row in rows])


class OneQueryAttention:
    """mlx-lm's gated attention, one query a call against the keys it may see."""

    def __init__(self, attention: Any) -> None:
        self._attention = attention

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        """X [B, T, H] to [B, T, H]; causal, whatever `mask` says; the cache grows by T."""
        if x.shape[1] == 1:
            return self._attention(x, mask, cache)
        own = self._attention
        batch, length, _ = x.shape
        heads = (batch, length, own.num_attention_heads, -1)
        kv_heads = (batch, length, own.num_key_value_heads, -1)
        queries, gate = mx.split(own.q_proj(x).reshape(heads), 2, axis=-1)
        keys, values = own.k_proj(x).reshape(kv_heads), own.v_proj(x).reshape(kv_heads)
        queries = own.rope(own.q_norm(queries).transpose(0, 2, 1, 3), offset=cache.offset)
        keys = own.rope(own.k_norm(keys).transpose(0, 2, 1, 3), offset=cache.offset)
        keys, values = cache.update_and_fetch(keys, values.transpose(0, 2, 1, 3))
        mixed = [
            scaled_dot_product_attention(
                queries[:, :, t : t + 1],
                _first(keys, cache.offset - length + t + 1),
                _first(values, cache.offset - length + t + 1),
                cache=cache,
                scale=own.scale,
                mask=None,
            )
            for t in range(length)
        ]
        rows = mx.concatenate(mixed, axis=2).transpose(0, 2, 1, 3).reshape(batch, length, -1)
        return own.o_proj(rows * mx.sigmoid(gate.reshape(batch, length, -1)))


def _first(rows: Any, count: int) -> Any:
    """The first rows of keys or values [B, KV, n, D], plain or quantised."""
    if isinstance(rows, mx.array):
        return rows[:, :, :count]
    return tuple(part[..., :count, :] for part in rows)


def twin(module: Any) -> Any:
    """A module over the same weights, exact by row."""
    if isinstance(module, nn.Linear):
        return OneRowProducts(module) if _alone_as_in_a_batch(module) else RowByRow(module)
    if isinstance(module, nn.QuantizedLinear):
        return RowByRow(module)
    if not isinstance(module, nn.Module):
        return module
    copy = type(module).__new__(type(module))
    own = cast("dict[str, Any]", module)
    vars(copy).update(vars(module))
    dict.update(
        copy, {name: value if name == _EXPERTS else twin(value) for name, value in own.items()}
    )
    if hasattr(module, _EXPERTS):  # in whatever has been put around them
        setattr(copy, _EXPERTS, RowByRow(getattr(module, _EXPERTS)))
    return OneQueryAttention(copy) if isinstance(module, Qwen3NextAttention) else copy


def _alone_as_in_a_batch(linear: nn.Linear) -> bool:
    """Whether a row's product is the same kernel alone and in a batch, in MLX's CUDA backend.

    Its kernel for one row takes inputs in steps of 32; one output makes the row the matrix.
    """
    outputs, inputs = linear["weight"].shape
    return "bias" not in linear and outputs > 1 and inputs % 32 == 0


def project(module: Any, hidden: mx.array, *, tied: bool) -> mx.array:
    """The output projection [B, T, H] to [B, T, V], exact by row.

    Args:
        module: the projection, or the embedding if it is `tied`.
        hidden: rows after the final norm.
        tied: whether the embedding projects.
    """
    if not tied:
        return twin(module)(hidden)
    if isinstance(module, nn.QuantizedEmbedding):
        return RowByRow(module.as_linear)(hidden)
    return one_row_products(hidden, module["weight"])
