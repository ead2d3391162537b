"""The zoo: sizes, names and settings."""

from dataclasses import fields, replace

import mlx.core as mx
import pytest

from reference_models.config import INDEXED, LINEAR, SLIDING, ConfigError, HybridConfig
from reference_models.zoo import ZOO, config_of, parameters_of, random_weights


@pytest.mark.parametrize("name", ZOO)
def test_size(name: str) -> None:
    """A zoo model, head included, has fewer than 200,000 parameters."""
    assert parameters_of(ZOO[name]) < 200_000


@pytest.mark.parametrize("name", ZOO)
def test_parameters(name: str) -> None:
    """The number of parameters is that of the weights."""
    assert parameters_of(ZOO[name]) == sum(a.size for a in random_weights(name).values())


def test_every_mechanism() -> None:
    """Between them the models have every mechanism there is."""
    kinds = {kind for config in ZOO.values() for kind in config.layer_types}
    assert kinds >= {LINEAR, SLIDING, INDEXED, "full_attention"}
    assert any(config.num_experts for config in ZOO.values())
    assert any(config.hc_count > 1 for config in ZOO.values())
    assert any(config.ple_layer_ids for config in ZOO.values())
    assert any(config.mtp_num_hidden_layers > 1 for config in ZOO.values())


def test_an_unknown_name() -> None:
    """An unknown name is answered with those there are."""
    with pytest.raises(ConfigError, match=r"no model 'gnd'; it has attn, gdn, "):
        config_of("gnd")


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_dtypes(name: str, dtype: mx.Dtype) -> None:
    """Weights have the dtype asked for, but the decay's logarithm is float32 always."""
    for tensor, array in random_weights(name, dtype).items():
        assert array.dtype == (mx.float32 if tensor.endswith("A_log") else dtype)


BROKEN = {
    "layer_types: 'banded'": {"layer_types": ("banded",)},
    "layer_types: a model needs": {"layer_types": ()},
    "num_attention_heads must be": {"num_key_value_heads": 3},
    "linear_num_value_heads must": {"linear_num_key_heads": 3},
    "indexer_n_heads": {"indexer_n_heads": 0},
    "indexer_budget must be": {"indexer_budget": 9},
    "do not fit into indexer_head_dim": {"indexer_head_dim": 4},
    "ple_layer_ids: 4 is not a linear": {"ple_layer_ids": (4,)},
    "ple_layer_ids: 0 is not a linear": {"ple_layer_ids": (0,)},
    "ple_layer_ids: 5 is not a linear": {"ple_layer_ids": (5,)},
    "ple_embed_dim must be": {"ple_embed_dim": 33},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_config_no_model_can_have(message: str) -> None:
    """Settings that contradict each other are refused by the field's name."""
    with pytest.raises(ConfigError, match=message):
        replace(config_of("flash-next"), **BROKEN[message])


@pytest.mark.parametrize("name", ZOO)
def test_a_config_as_a_mapping(name: str) -> None:
    """A config survives the way to a mapping and back; unknown fields are ignored."""
    config = ZOO[name]
    assert HybridConfig.from_dict({**config.to_dict(), "hidden_dropout": 0.1}) == config
    assert set(config.to_dict()) == {field.name for field in fields(config)}


@pytest.mark.parametrize("field", ["model_type", "layer_types"])
def test_a_mapping_without_the_required(field: str) -> None:
    """A mapping without a required field is refused by its name."""
    mapping = config_of("gdn").to_dict()
    del mapping[field]
    with pytest.raises(ConfigError, match=f"config lacks {field}"):
        HybridConfig.from_dict(mapping)
