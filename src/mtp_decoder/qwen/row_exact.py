"""mlx-lm's Qwen layers with rows computed as in one-token steps, cheaper than one by one.

On CUDA a product of one row is the same kernel whether it comes alone or in a batch, and so is
attention of one query. A verify pass can therefore keep its rows together everywhere but in
attention itself, which is asked query by query. Quantised products and experts are asked for as
many rows together as keep the bits of one, which is found out at first use (`RowsTogether`).
Measured: `docs/gpu.md`. Elsewhere nobody has shown that a batch of rows keeps the bits, and
`mtp_decoder.row_exact` runs every layer row by row.

The modules are mlx-lm's own: a twin of each layer shares its weights, and only its products,
its attention and its experts are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.base import scaled_dot_product_attention
from mlx_lm.models.qwen3_next import Qwen3NextAttention
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchGLU, SwitchLinear

from mtp_decoder.row_exact import joined, rows_of, same_bits

_EXPERTS = "switch_mlp"
_STACKS = (SwitchLinear, QuantizedSwitchLinear)
_SORTED_FROM = 64
"""Choices of experts that mlx-lm sorts by expert, this many or more."""
_WIDEST = 16
"""Rows that are tried together."""
_VALUES = 1 << 14
"""Values that must not differ before rows stay together."""
_FEW = 1 << 4
"""Values of one call; with fewer it takes too long to ask, and one by one costs little."""


class OneRowProducts:
    """A dense projection whose rows are a batch of one-row products."""

    def __init__(self, linear: nn.Linear) -> None:
        self._linear = linear
        self._weight = Batched(linear)

    def __call__(self, x: mx.array) -> mx.array:
        """X [B, T, H] to [B, T, N]."""
        if x.shape[1] == 1:
            return self._linear(x)
        return one_row_products(x, self._weight())


class Batched:
    """A module's weight [N, H] as a batch of matrices [1, 1, H, N], made once."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._made: tuple[mx.array, mx.array] | None = None

    def __call__(self) -> mx.array:
        """The batch over the weight that the module has now."""
        weight = self._module["weight"]
        if self._made is None or self._made[0] is not weight:
            self._made = weight, weight.T[None, None]
        return self._made[1]


def one_row_products(x: mx.array, weight: mx.array) -> mx.array:
    """X [B, T, H] times a weight [1, 1, H, N], as B * T products of one row: [B, T, N]."""
    # MLX folds a batch into the rows of one product wherever it can: at once if the weight is a
    # matrix, and in the kernel's dispatch if the rows lie together. Axes made by indexing with None
    # escape both; a reshape would not. `tests.gpu` holds this on CUDA.
    return mx.squeeze(x[:, :, None] @ weight, 2)


class RowByRow:
    """A module that sees one row a call."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, *arrays: mx.array) -> mx.array:
        """Arrays [B, T, ...] to [B, T, ...]."""
        rows = zip(*(rows_of(array) for array in arrays), strict=True)
        return joined([self._module(*row) for row in rows])


class RowsTogether:
    """A module that sees as many rows a call as keep the bits of one.

    A backend takes its kernel by shapes, not by values. So whether several rows keep their bits
    is asked once a shape, on random inputs: 16,384 values and more, of which another order of
    summing was seen to change one in a thousand or more. Where one differs, fewer rows are tried,
    down to one. Gates of one output go row by row, and choices that mlx-lm would sort are never
    kept together: how many rows an expert then gets is a matter of values.
    """

    def __init__(self, module: Any, weights: nn.Module, choices: int = 0) -> None:
        """Wrap a module.

        Args:
            module: rows [B, T, ...] to rows; all arguments have a row a position.
            weights: what it multiplies with; modules with equal shapes there share an answer.
            choices: how many experts the integers of a second argument choose from.
        """
        self._module, self._choices = module, choices
        arrays = cast("list[tuple[str, mx.array]]", tree_flatten(weights.parameters()))
        kinds = tuple((name, array.shape, array.dtype) for name, array in arrays)
        settings = (getattr(weights, name, None) for name in ("bits", "group_size", "mode"))
        self._kind = (type(weights), kinds, *settings)

    def __call__(self, *arrays: mx.array) -> mx.array:
        """Arrays [B, T, ...] to [B, T, ...]."""
        length, done = arrays[0].shape[1], 0
        rows: list[mx.array] = []
        while done < length:
            width = self._widest(length - done, arrays)
            if width == length:
                return self._module(*arrays)
            rows.append(self._module(*(a[:, done : done + width] for a in arrays)))
            done += width
        return joined(rows)

    def _widest(self, left: int, arrays: Sequence[mx.array]) -> int:
        """As many of the rows left as keep their bits; of fewer rows nobody has said so."""
        widths = range(min(left, _WIDEST), 1, -1)
        return next((width for width in widths if self._keeps(width, arrays)), 1)

    def _keeps(self, width: int, arrays: Sequence[mx.array]) -> bool:
        if any(array[:, :width].size >= _SORTED_FROM for array in arrays[1:]):
            return False
        shapes = [(width, *array.shape[2:], array.dtype) for array in arrays]
        asked = (str(mx.default_device()), self._kind, arrays[0].shape[0], *shapes)
        if asked not in _ANSWERS:
            _ANSWERS[asked] = self._try(width, arrays)
        return _ANSWERS[asked]

    def _try(self, width: int, arrays: Sequence[mx.array]) -> bool:
        seen, key = 0, mx.random.key(0)
        while seen < _VALUES:
            key, draw = mx.random.split(key)
            tried = self._random(width, arrays, draw)
            together = self._module(*tried)
            if together.size < _FEW:
                return False
            if not same_bits(together, RowByRow(self._module)(*tried)):
                return False
            seen += together.size
        return True

    def _random(self, width: int, arrays: Sequence[mx.array], draw: mx.array) -> list[mx.array]:
        """Rows, and for every further argument choices of experts, no two of a row the same."""
        rows, *chosen = arrays
        shape = (rows.shape[0], width, *rows.shape[2:])
        found = [mx.random.normal(shape, key=draw).astype(rows.dtype)]
        for array in chosen:
            shape = (array.shape[0], width, self._choices)
            order = mx.argsort(mx.random.normal(shape, key=draw), axis=-1)
            found.append(order[..., : array.shape[2]].astype(array.dtype))
        return found


_ANSWERS: dict[tuple[Any, ...], bool] = {}
"""By device, module, batch, width and row: whether its rows together have their bits."""


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
    if type(module) is nn.Linear:
        return OneRowProducts(module) if _alone_as_in_a_batch(module) else RowByRow(module)
    if isinstance(module, nn.QuantizedLinear):
        return RowsTogether(module, module)
    if not isinstance(module, nn.Module):
        return module
    if _multiplies_by_its_own(module):
        return RowByRow(module)
    copy = type(module).__new__(type(module))
    own = cast("dict[str, Any]", module)
    vars(copy).update(vars(module))
    dict.update(
        copy, {name: value if name == _EXPERTS else twin(value) for name, value in own.items()}
    )
    if hasattr(module, _EXPERTS):  # in whatever has been put around them
        setattr(copy, _EXPERTS, _experts(getattr(module, _EXPERTS)))
    return OneQueryAttention(copy) if isinstance(module, Qwen3NextAttention) else copy


def _experts(module: Any) -> Any:
    """Experts of mlx-lm's class, or what stands for them: read from disk, say, or grouped."""
    if type(module) is not SwitchGLU or type(module.gate_proj) not in _STACKS:
        return RowByRow(module)
    return RowsTogether(module, module, choices=module.gate_proj["weight"].shape[0])


def _multiplies_by_its_own(module: nn.Module) -> bool:
    """Whether it has a matrix and is of no class known here, such as one of LoRA or `qqmm`.

    How it multiplies rows of several positions nobody has looked at. A convolution's weight is a
    matrix a channel, and its kernel takes the positions one by one.
    """
    own = cast("dict[str, Any]", module).values()
    has_one = any(isinstance(value, mx.array) and value.ndim > 1 for value in own)
    return has_one and not isinstance(module, nn.Conv1d)


def _alone_as_in_a_batch(linear: nn.Module) -> bool:
    """Whether a row's product is the same kernel alone and in a batch, in MLX's CUDA backend.

    Its kernel for one row takes inputs in steps of 32; one output makes the row the matrix.
    """
    outputs, inputs = linear["weight"].shape
    return "bias" not in linear and outputs > 1 and inputs % 32 == 0


def projection(module: Any, *, tied: bool) -> Callable[[mx.array], mx.array]:
    """The output projection [B, T, H] to [B, T, V], exact by row.

    Args:
        module: the projection, or the embedding if it is `tied`.
        tied: whether the embedding projects.
    """
    if not tied:
        return twin(module)
    if isinstance(module, nn.QuantizedEmbedding):
        return RowsTogether(module.as_linear, module)
    if not _alone_as_in_a_batch(module):
        return RowByRow(module.as_linear)
    weight = Batched(module)
    return lambda hidden: one_row_products(hidden, weight())
