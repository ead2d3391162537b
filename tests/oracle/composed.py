# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# (PyTorch is in the oracle's environment alone)
"""What transformers has the parts of, but no class: MTP heads, and targets of one mechanism.

transformers drops `mtp.*` of all four families, and knows no `hybrid_reference`. Both are put
together here from its decoder layers, attentions, norms and residuals, so that every formula
but the joining is its own. The joins, with where they are from:

    qwen3_5 form    x = fc [norm_e(E[t]) ; norm_h(h)]; layers; y = norm(x)    (mlx-lm PR 990)
    qwen4_exp form  x_s = fc_e norm_e(E[t]) + fc_h norm_h(h)_s; layers; mixer (SGLang)
    hybrid targets  x <- x + ple(x); x <- x + mixer(norm x); x <- x + mlp(norm x)

Parameters are named as in the checkpoints, so loading is strict in both directions.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicIndexedLayer, DynamicLayer
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as qwen3_5_moe
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen4_exp

from reference_models.config import FULL, INDEXED, LINEAR, SLIDING, HybridConfig
from reference_models.mtp import head_kind

EAGER = {"_attn_implementation": "eager", "_experts_implementation": "eager"}
"""Plain PyTorch; the default way to run experts refuses float64."""


class Family(NamedTuple):
    """transformers' classes of one family."""

    layer: Any
    norm: Any


FAMILIES = {
    "qwen3_5": Family(qwen3_5.Qwen3_5DecoderLayer, qwen3_5.Qwen3_5RMSNorm),
    "qwen3_5_moe": Family(qwen3_5_moe.Qwen3_5MoeDecoderLayer, qwen3_5_moe.Qwen3_5MoeRMSNorm),
    "qwen3_next": Family(qwen3_next.Qwen3NextDecoderLayer, qwen3_next.Qwen3NextRMSNorm),
    "qwen4_exp": Family(qwen4_exp.Qwen4ExpTextDecoderLayer, qwen4_exp.Qwen4ExpTextRMSNorm),
    "hybrid_reference": Family(qwen3_5.Qwen3_5DecoderLayer, qwen3_5.Qwen3_5RMSNorm),
}


def with_layers(config: Any, kinds: list[str]) -> Any:
    """A copy of a transformers config with other layers, and with no PLE."""
    changed = copy.deepcopy(config)
    changed.layer_types, changed.num_hidden_layers = kinds, len(kinds)
    if hasattr(changed, "ple_layer_ids"):
        changed.ple_layer_ids = []
    for name, value in EAGER.items():
        setattr(changed, name, value)
    return changed


def causal(first: int, length: int, dtype: torch.dtype, window: int | None = None) -> Any:
    """What eager attention adds to scores: [1, 1, length, first + length], 0 where visible."""
    query = torch.arange(first, first + length)[:, None]
    key = torch.arange(first + length)[None, :]
    visible = key <= query
    if window is not None:
        visible = visible & (key > query - window)
    hidden = torch.full((length, first + length), torch.finfo(dtype).min, dtype=dtype)
    return hidden.masked_fill(visible, 0.0)[None, None]


def positions(family: str, first: int, length: int) -> Any:
    """Positions as a family's rotary embedding wants them: one row, or one for each axis."""
    row = torch.arange(first, first + length)[None]
    return row if family == "qwen3_next" else row[None].expand(3, 1, length)


class ComposedHead(nn.Module):
    """An MTP head of transformers' modules.

    `norm_hidden` normalises the hidden over all streams at once, or over each (`per_stream`):
    the two readings of qwen4_exp's `pre_fc_norm_hidden` that implementations disagree about.
    """

    def __init__(
        self, config: HybridConfig, theirs: Any, target: Any, *, per_stream: bool = False
    ) -> None:
        super().__init__()
        family, self.kind = FAMILIES[config.model_type], head_kind(config)
        self._config, self._family = config, config.model_type
        self._target = [target]  # in a list, so that its parameters are not this module's
        size, eps = config.hidden_size, config.rms_norm_eps
        self._theirs = with_layers(theirs, [self.kind] * config.mtp_num_hidden_layers)
        grouped = {"group_size": size} if per_stream else {}
        self.pre_fc_norm_embedding = family.norm(size, eps=eps)
        self.pre_fc_norm_hidden = family.norm(config.wide_size, eps=eps, **grouped)
        if config.hc_count > 1:
            self.fc_embedding = nn.Linear(size, size, bias=False)
            self.fc_hidden = nn.Linear(size, size, bias=False)
            self.hyper_connection_mixer = qwen4_exp.Qwen4ExpTextGatedResidual(self._theirs, False)
        else:
            self.fc = nn.Linear(2 * size, size, bias=False)
            self.norm = family.norm(size, eps=eps)
        self.layers = nn.ModuleList(
            make_layer(config, self._theirs, i, self.kind)
            for i in range(config.mtp_num_hidden_layers)
        )

    def make_cache(self) -> Any:
        """An empty cache, one pair a row."""
        return cache_of([self.kind] * len(self.layers))

    def forward(self, hidden: Any, tokens: Any, cache: Any) -> tuple[Any, Any]:
        """Pairs (hidden [1, T, W], tokens [1, T]) to logits [1, T, V] and the chain's hidden."""
        model = self._target[0].model
        x = self._join(hidden, self.pre_fc_norm_embedding(model.embed_tokens(tokens)))
        first, length = cache.get_seq_length(), tokens.shape[1]
        start = 0 if self.kind == INDEXED else first  # the indexer wants every position
        ids = positions(self._family, start, first + length - start)
        rotary = model.rotary_emb(x, ids)
        mask = causal(first, length, x.dtype)
        for layer in self.layers:
            x = layer(x, position_embeddings=rotary, attention_mask=mask, cache=cache)
        wide = self._config.hc_count > 1
        read = self.hyper_connection_mixer(x) if wide else self.norm(x)
        return self._target[0].lm_head(read), x if wide else read

    def _join(self, hidden: Any, embedded: Any) -> Any:
        normed, c = self.pre_fc_norm_hidden(hidden), self._config
        if c.hc_count == 1:
            return self.fc(torch.cat([embedded, normed], dim=-1))
        streams = self.fc_hidden(normed.unflatten(-1, (c.hc_count, c.hidden_size)))
        return (streams + self.fc_embedding(embedded).unsqueeze(-2)).flatten(-2)


def cache_of(kinds: list[str]) -> Any:
    """An empty cache with one layer a kind."""
    cache: Any = DynamicCache()
    cache.layers = [DynamicIndexedLayer() if k == INDEXED else DynamicLayer() for k in kinds]
    return cache


def make_layer(config: HybridConfig, theirs: Any, index: int, kind: str) -> Any:
    """A decoder layer of the family; in a hybrid target, with Qwen4-Exp's indexed attention."""
    layer = FAMILIES[config.model_type].layer(theirs, index)
    if config.model_type == "hybrid_reference" and kind == INDEXED:
        layer.self_attn = qwen4_exp.Qwen4ExpTextAttention(qwen4_config(config), index)
    return layer


def qwen4_config(config: HybridConfig) -> Any:
    """A config for Qwen4-Exp's indexer and PLE where the model has one residual stream.

    The class refuses one stream and no experts, so both are set after it has looked.
    """
    names = ("ple_", "ngram_", "heads_", "make_", "num_", "head_")
    names += ("indexer_",) if config.indexer_n_heads else ()
    values = {n: v for n, v in config.to_dict().items() if n.startswith(names)}
    config_class: Any = transformers.Qwen4ExpTextConfig
    made = config_class(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        rms_norm_eps=config.rms_norm_eps,
        eos_token_id=config.eos_token_id,
        seed=config.seed,
        rope_parameters=rope_of(config),
        layer_types=[INDEXED if kind == INDEXED else LINEAR for kind in config.layer_types],
        num_hidden_layers=config.num_hidden_layers,
        **{**values, "num_experts": 1, "num_experts_per_tok": 1},
    )
    made.hc_count = config.hc_count
    for name, value in EAGER.items():
        setattr(made, name, value)
    return made


def rope_of(config: HybridConfig) -> dict[str, Any]:
    """Rotary parameters as transformers spells them."""
    return {
        "rope_type": "default",
        "rope_theta": config.rope_theta,
        "partial_rotary_factor": config.partial_rotary_factor,
        "mrope_section": [2, 1, 1],
    }


class _Body(nn.Module):
    """Embedding, layers and norm of a composed target, named as in checkpoints."""

    def __init__(self, config: HybridConfig, theirs: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            make_layer(config, theirs, i, kind) for i, kind in enumerate(config.layer_types)
        )
        for order, layer_id in enumerate(config.ple_layer_ids):
            ple = qwen4_exp.Qwen4ExpTextPLELayer(qwen4_config(config), layer_id - 1, order)
            self.layers[layer_id - 1].ple = ple
        self.norm = FAMILIES["hybrid_reference"].norm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = qwen3_5.Qwen3_5TextRotaryEmbedding(theirs)


class ComposedTarget(nn.Module):
    """A `hybrid_reference` target of transformers' modules."""

    def __init__(self, config: HybridConfig, theirs: Any) -> None:
        super().__init__()
        self._config, self.config = config, theirs
        self.model = _Body(config, theirs)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def make_cache(self) -> Any:
        """An empty cache: three convolution slots where there is a PLE."""
        template = copy.copy(self.config)
        kinds = [FULL if kind == SLIDING else kind for kind in self._config.layer_types]
        template.layer_types = kinds
        template.number_of_conv_states = 3 if self._config.ple_layer_ids else 1
        return DynamicCache(config=template)

    def forward(self, tokens: Any, cache: Any) -> Any:
        """Logits [1, T, V] of tokens [1, T]."""
        c, x = self._config, self.model.embed_tokens(tokens)
        length = tokens.shape[1]
        first = _seen(cache)
        rotary = self.model.rotary_emb(x, positions("", 0, first + length))
        now = tuple(part[:, -length:] for part in rotary)
        for kind, layer in zip(c.layer_types, self.model.layers, strict=True):
            if hasattr(layer, "ple"):
                x = x + layer.ple(x, tokens, cache)
            window = c.sliding_window if kind == SLIDING else None
            mask = None if kind == LINEAR else causal(first, length, x.dtype, window)
            at = rotary if kind == INDEXED else now
            x = layer(x, position_embeddings=at, attention_mask=mask, cache=cache)
        return self.lm_head(self.model.norm(x))


def _seen(cache: Any) -> int:
    """Tokens in the first layer that counts them."""
    lengths = [layer.get_seq_length() for layer in cache.layers if hasattr(layer, "keys")]
    return int(lengths[0])
