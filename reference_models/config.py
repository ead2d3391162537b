"""The configuration of a hybrid model, with fields spelled as Hugging Face spells them.

One flat, frozen record covers every family of the zoo; `reference_models.checkpoint` knows
how each family nests it in `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

LINEAR = "linear_attention"
FULL = "full_attention"
SLIDING = "sliding_attention"
INDEXED = "indexed_attention"


class ConfigError(ValueError):
    """A configuration that no model can be built from; the message names the field."""


@dataclass(frozen=True)
class HybridConfig:
    """Sizes and switches of one model. Defaults are the zoo's tiny sizes.

    `ple_layer_ids` counts from one, as in Hugging Face's `qwen4_exp`; everything else that
    counts layers counts from zero.
    """

    model_type: str
    layer_types: tuple[str, ...]
    vocab_size: int = 260
    hidden_size: int = 32
    intermediate_size: int = 48
    rms_norm_eps: float = 1e-6
    eos_token_id: int = 256
    tie_word_embeddings: bool = False
    # attention
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    rope_theta: float = 10_000.0
    partial_rotary_factor: float = 0.5
    sliding_window: int = 8
    # pooled index keys; 0 heads switch them off
    indexer_n_heads: int = 0
    indexer_kv_heads: int = 1
    indexer_head_dim: int = 16
    indexer_budget: int = 8
    indexer_compress_ratio: int = 4
    # GatedDeltaNet
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 8
    linear_value_head_dim: int = 8
    linear_conv_kernel_dim: int = 4
    output_gate_type: str = "silu"
    # per-layer embedding
    ple_layer_ids: tuple[int, ...] = ()
    ple_embed_dim: int = 32
    ple_conv_kernel_size: int = 4
    ngram_size: int = 3
    heads_per_ngram: int = 4
    ngram_vocab_size_base: int = 50
    make_ngram_vocab_size_divisible_by: int = 8
    split_ngram_parts: int = 4
    seed: int = 1234
    # hyper-connections; 1 stream switches them off
    hc_count: int = 1
    hc_lowrank: int = 8
    # experts; 0 switches them off
    num_experts: int = 0
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 16
    shared_expert_intermediate_size: int = 16
    norm_topk_prob: bool = True
    # MTP head
    mtp_num_hidden_layers: int = 1

    def __post_init__(self) -> None:
        known = {LINEAR, FULL, SLIDING, INDEXED}
        for kind in self.layer_types:
            if kind not in known:
                raise ConfigError(f"layer_types: {kind!r} is none of {sorted(known)}")
        if not self.layer_types:
            raise ConfigError("layer_types: a model needs at least one layer")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError("num_attention_heads must be a multiple of num_key_value_heads")
        if self.linear_num_value_heads % self.linear_num_key_heads:
            raise ConfigError("linear_num_value_heads must be a multiple of linear_num_key_heads")
        if INDEXED in self.layer_types and not self.indexer_n_heads:
            raise ConfigError("indexer_n_heads: an indexed_attention layer needs index heads")
        if self.indexer_budget % self.indexer_compress_ratio:
            raise ConfigError("indexer_budget must be a multiple of indexer_compress_ratio")
        if self.rotary_dim > self.indexer_head_dim and self.indexer_n_heads:
            raise ConfigError("the rotary dimensions do not fit into indexer_head_dim")
        for layer_id in self.ple_layer_ids:
            in_range = 1 <= layer_id <= len(self.layer_types)
            if not in_range or self.layer_types[layer_id - 1] != LINEAR:
                raise ConfigError(f"ple_layer_ids: {layer_id} is not a linear_attention layer")
        if self.ple_layer_ids and self.ple_embed_dim % self.ngram_heads:
            raise ConfigError("ple_embed_dim must be a multiple of the number of n-gram heads")

    @property
    def num_hidden_layers(self) -> int:
        """Number of target layers, without the MTP head's."""
        return len(self.layer_types)

    @property
    def rotary_dim(self) -> int:
        """How many of the first dimensions of a head rotary embedding turns."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def wide_size(self) -> int:
        """Width of the residual stream: `hc_count * hidden_size`."""
        return self.hc_count * self.hidden_size

    @property
    def conv_channels(self) -> int:
        """Channels of the GatedDeltaNet's short convolution: q, k and v side by side."""
        keys = 2 * self.linear_num_key_heads * self.linear_key_head_dim
        return keys + self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def ngram_heads(self) -> int:
        """Hashed embedding heads of one PLE layer, over all n-gram orders."""
        return (self.ngram_size - 1) * self.heads_per_ngram

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> HybridConfig:
        """Read a flat mapping; lists become tuples, unknown keys are ignored.

        Raises:
            ConfigError: a required field is missing or the values contradict each other.
        """
        names = {field.name for field in fields(cls)}
        for field in fields(cls):
            value, default = values.get(field.name, field.default), field.default
            number = (int, float) if isinstance(default, float) else int
            if isinstance(default, int | float) and not isinstance(value, number):
                raise ConfigError(f"{field.name} must be a number like {default}, not {value!r}")
        missing = {"model_type", "layer_types"} - set(values)
        if missing:
            raise ConfigError(f"config lacks {', '.join(sorted(missing))}")
        kept: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in names
        }
        return cls(**kept)

    def to_dict(self) -> dict[str, Any]:
        """The flat mapping `from_dict` reads; tuples become lists."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
