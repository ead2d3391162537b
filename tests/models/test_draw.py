"""How random weights are drawn: the same bits everywhere."""

import hashlib

import mlx.core as mx
import numpy as np
import pytest

from mtp_conformance.exactness import require_equal
from reference_models.weights import Fill, Tensor, Weights, draw, prefixed
from reference_models.zoo import ZOO, random_weights
from tests.models.helpers import listed

PINNED = {
    ("gdn", "model.layers.0.linear_attn.in_proj_qkv.weight"): (
        "1ce6e174ec12f39208ec88e7839b464b414345291c9d8878253334e97232c224"
    ),
    ("gdn", "model.layers.0.linear_attn.A_log"): (
        "3bc04d9134cac42c1190241705aa96021533365fe51e2d73548f48ec0c5bf7eb"
    ),
    ("gdn-wide", "model.layers.1.self_attn.k_proj.weight"): (
        "c6af6e03f242d47f566f74adce8fe6335c00ec6309703ca645d1ec9141f4f7e0"
    ),
    ("gdn-wide", "mtp.layers.0.self_attn.q_norm.weight"): (
        "60cc3a5f0e7070cedcbad9bce30c4853ba7c4da37489b3a68681dbc1a6312302"
    ),
}


@pytest.mark.parametrize(("model", "name"), PINNED)
def test_pinned(model: str, name: str) -> None:
    """The values of a tensor are those of the day they were first drawn, on any platform."""
    array = np.array(random_weights(model)[name])
    assert hashlib.sha256(array.astype("<f4").tobytes()).hexdigest() == PINNED[model, name]


def test_names() -> None:
    """Tensors and models of other names have other values."""
    tensor = Tensor((4, 8))
    drawn = [draw(*names, tensor) for names in (("a", "x"), ("a", "y"), ("b", "x"))]
    assert len({array.tobytes() for array in drawn}) == 3


def test_the_seed_of_mlx() -> None:
    """The random state of mlx has no part in it."""
    mx.random.seed(1)
    first = random_weights("window")
    mx.random.seed(2)
    mx.eval(mx.random.normal((3,)))
    require_equal(random_weights("window"), first, what="weights under another seed")


def test_the_seed_of_numpy() -> None:
    """The random state of NumPy has no part in it either."""
    np.random.seed(1)
    first = draw("m", "t", Tensor((5,)))
    np.random.seed(2)
    assert draw("m", "t", Tensor((5,))).tobytes() == first.tobytes()


BOUNDS = {
    Fill.MATRIX: (3 / 16) ** 0.5,
    Fill.LOUD_MATRIX: (12 / 16) ** 0.5,
    Fill.EMBEDDING: 3**0.5,
    Fill.CONV: 0.7,
}


@pytest.mark.parametrize("fill", BOUNDS)
def test_spread(fill: Fill) -> None:
    """Values fill the range of their kind, and their variance is that of a uniform one."""
    values = draw("m", "t", Tensor((256, 16), fill)).astype(np.float64)
    bound = BOUNDS[fill]
    assert -bound <= values.min() < -0.99 * bound
    assert 0.99 * bound < values.max() <= bound
    assert abs(values.var() / (bound * bound / 3) - 1) < 0.05


@pytest.mark.parametrize(
    ("fill", "low", "high"),
    [
        (Fill.NORM_ABOUT_ZERO, -0.4, 0.4),
        (Fill.NORM_ABOUT_ONE, 0.6, 1.4),
        (Fill.DECAY, -1.5, 1.0),
        (Fill.TIME_STEP, -1.0, 1.0),
    ],
)
def test_ranges(fill: Fill, low: float, high: float) -> None:
    """Kinds that are not about zero fill their range too."""
    values = draw("m", "t", Tensor((4096,), fill))
    assert low <= values.min() < low + 0.01 < high - 0.01 < values.max() <= high


MADE = ("gdn-agree", "attn-ties")


@pytest.mark.parametrize("name", [name for name in ZOO if name not in MADE])
def test_no_two_tensors_are_alike(name: str) -> None:
    """No two tensors of a model start alike, where none was made to agree or to tie."""
    starts = [tuple(listed(array.reshape(-1)[:2])) for array in random_weights(name).values()]
    assert len(set(starts)) == len(starts)


def test_a_missing_tensor() -> None:
    """A view names a tensor that is not there by its full name."""
    view = Weights({"model.norm.weight": mx.zeros((1,))}).at("model")
    with pytest.raises(KeyError, match=r"no tensor 'model\.norm\.bias'"):
        view["norm.bias"]


def test_a_view() -> None:
    """A view sees the arrays below its prefix by their short names."""
    tensors = prefixed("model", {"norm.weight": Tensor((1,))})
    view = Weights({name: mx.zeros((1,)) for name in tensors}).at("model").at("norm")
    assert "weight" in view
    assert "norm.weight" not in view
