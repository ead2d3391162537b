"""What a cache holds after n tokens, from the configuration alone: names and shapes.

The canonical layout of the state: B is 1, a component without a row is left out. It is
written from the mechanisms' definitions, not from a decoder, so that an array a decoder
forgets to show is missed.
"""

from __future__ import annotations

from reference_models.config import INDEXED, LINEAR, SLIDING, HybridConfig
from reference_models.mtp import head_kind

Shapes = dict[str, tuple[int, ...]]


def expected_state(config: HybridConfig, tokens: int) -> Shapes:
    """Shapes of every array after `tokens` target tokens, the head one pair behind.

    Args:
        config: the model's.
        tokens: tokens in the target's caches, at least one.
    """
    found: Shapes = {}
    for index, kind in enumerate(config.layer_types):
        has_ple = index + 1 in config.ple_layer_ids
        found |= _named(f"layers.{index}", _layer(config, kind, has_ple, tokens))
    for index in range(config.mtp_num_hidden_layers):
        found |= _named(f"head.{index}", _layer(config, head_kind(config), False, tokens - 1))
    return {**found, "head.frontier.hidden": (1, 1, config.wide_size)}


def _named(prefix: str, shapes: Shapes) -> Shapes:
    """With the prefix, and without arrays that have no row."""
    return {f"{prefix}.{name}": shape for name, shape in shapes.items() if 0 not in shape}


def _layer(config: HybridConfig, kind: str, has_ple: bool, n: int) -> Shapes:
    if kind == LINEAR:
        return {**_recurrence(config), **(_ple(config) if has_ple else {})}
    rows = min(n, config.sliding_window) if kind == SLIDING else n
    shape = (1, config.num_key_value_heads, rows, config.head_dim)
    attention: Shapes = {"keys": shape, "values": shape, "offset": ()}
    return {**attention, **(_index(config, n) if kind == INDEXED else {})}


def _recurrence(config: HybridConfig) -> Shapes:
    heads, value = config.linear_num_value_heads, config.linear_value_head_dim
    return {
        "conv": (1, config.linear_conv_kernel_dim - 1, config.conv_channels),
        "recurrent": (1, heads, value, config.linear_key_head_dim),
    }


def _ple(config: HybridConfig) -> Shapes:
    past = (config.ple_conv_kernel_size - 1) * config.ngram_size
    return {"ngram": (1, config.ngram_size - 1), "ple_conv": (1, past, config.wide_size)}


def _index(config: HybridConfig, n: int) -> Shapes:
    ratio, dim = config.indexer_compress_ratio, config.indexer_head_dim
    whole = n // ratio * ratio
    return {
        "index_offset": (),
        "index_keys": (1, 1, whole, dim),
        "open_block": (1, 1, n - whole, dim),
        "pooled": (1, n // ratio, dim),
    }
