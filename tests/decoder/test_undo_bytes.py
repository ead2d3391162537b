"""Rewind of recurrent state: what each strategy has to remember."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import Rewind
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.target import Target
from mtp_decoder.window import Window
from reference_models.config import LINEAR, HybridConfig
from reference_models.zoo import config_of
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

MODELS = ("gdn", "ple", "qsa", "flash-next")


def _bytes(target: Target, strategy: Rewind, positions: int = 5) -> int:
    window = Window(target, target.make_cache(), strategy)
    window.run(mx.array([PROMPT[:positions]]))
    return window.nbytes()


def _linear_layers(config: HybridConfig) -> int:
    return config.layer_types.count(LINEAR)


def _tape(config: HybridConfig, width: int) -> int:
    """Bytes of one position: convolution rows and two gates a layer, and rows of the PLEs."""
    gates = 2 * config.linear_num_value_heads
    layers = _linear_layers(config) * (config.conv_channels + gates)
    return width * (layers + len(config.ple_layer_ids) * config.wide_size)


def _snapshot(config: HybridConfig, width: int) -> int:
    """Bytes of one position: the convolution's window and the float32 state of every layer."""
    window = (config.linear_conv_kernel_dim - 1) * config.conv_channels
    heads = config.linear_num_value_heads * config.linear_value_head_dim
    layers = _linear_layers(config) * (width * window + 4 * heads * config.linear_key_head_dim)
    rows = (config.ple_conv_kernel_size - 1) * config.ngram_size * config.wide_size
    ids = 8 * (config.ngram_size - 1)
    return layers + len(config.ple_layer_ids) * (width * rows + ids)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("positions", [1, 5])
def test_the_tape(zoo: Zoo, name: str, dtype: mx.Dtype, positions: int) -> None:
    """A tape holds the inputs of convolution and recurrence, and nothing else."""
    expected = positions * _tape(config_of(name), dtype.size)
    assert _bytes(zoo(name, dtype)[0], Rewind.TAPE, positions) == expected


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_snapshots(zoo: Zoo, name: str, dtype: mx.Dtype) -> None:
    """Snapshots hold every layer's whole state after every position."""
    expected = 5 * _snapshot(config_of(name), dtype.size)
    assert _bytes(zoo(name, dtype)[0], Rewind.SNAPSHOT) == expected


@pytest.mark.parametrize("name", MODELS)
def test_inputs(zoo: Zoo, name: str) -> None:
    """Rerunning needs the residual that entered each recurrent layer."""
    config = config_of(name)
    expected = 5 * _linear_layers(config) * config.wide_size * 4
    assert _bytes(zoo(name)[0], Rewind.RERUN) == expected


@pytest.mark.parametrize("name", MODELS)
def test_replaying(zoo: Zoo, name: str) -> None:
    """Replaying needs nothing but the tokens."""
    assert _bytes(zoo(name)[0], Rewind.REPLAY) == 0


@pytest.mark.parametrize("name", MODELS)
def test_the_tape_is_the_smaller(zoo: Zoo, name: str) -> None:
    """A tape is smaller than the snapshots it stands for."""
    target, _ = zoo(name)
    assert _bytes(target, Rewind.TAPE) < _bytes(target, Rewind.SNAPSHOT)


@pytest.mark.parametrize("name", ["gdn", "gdn-moe", "gdn-next"])
def test_mlx_lm_models(qwen: Callable[[str], Loaded], name: str) -> None:
    """Of mlx-lm's models as much is taped as of the reference models."""
    assert _bytes(qwen(name).target, Rewind.TAPE) == 5 * _tape(config_of(name), 4)
