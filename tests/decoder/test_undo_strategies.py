"""Rewind of recurrent state: four strategies, one result."""

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import Rewind, RewindError, Target
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.state import copy_cache, named_state
from mtp_decoder.window import Window, forward
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

TOKENS = mx.array([[101, 256, 97, 10, 116]])
WIDTH = TOKENS.shape[1]
REFERENCE = ("gdn", "window", "ple", "qsa", "flash-next")
MLX_LM = ("gdn+mlx-lm", "gdn-moe+mlx-lm", "gdn-next+mlx-lm")


@pytest.fixture
def target(request: pytest.FixtureRequest, zoo: Zoo, qwen: Callable[[str], Loaded]) -> Target:
    """Return the target a test names, of the reference models or of mlx-lm's classes."""
    name: str = request.param
    return qwen(name.partition("+")[0]).target if "+" in name else zoo(name)[0]


@cache
def _prefilled(target: Target) -> list[Any]:
    caches = target.make_cache()
    mx.eval(forward(target, mx.array([PROMPT]), caches))
    return caches


@cache
def _after(target: Target, keep: int) -> dict[str, mx.array]:
    caches = [copy_cache(c) for c in _prefilled(target)]
    if keep:
        forward(target, TOKENS[:, :keep], caches)
    return named_state(target.layers, caches, "layers")


@pytest.mark.parametrize("keep", range(WIDTH + 1))
@pytest.mark.parametrize("strategy", list(Rewind))
@pytest.mark.parametrize("target", [*REFERENCE, *MLX_LM], indirect=True)
def test_any_number_of_positions(target: Target, strategy: Rewind, keep: int) -> None:
    """A rewind to any length gives the bits of a pass over the kept positions alone."""
    caches = [copy_cache(c) for c in _prefilled(target)]
    window = Window(target, caches, strategy)
    window.run(TOKENS)
    window.rewind(keep)
    found = named_state(target.layers, caches, "layers")
    require_equal(found, _after(target, keep), what="a pass over the kept positions")


@pytest.mark.parametrize("strategy", list(Rewind))
@pytest.mark.parametrize("target", ["flash-next", "gdn-next+mlx-lm"], indirect=True)
def test_from_nothing(target: Target, strategy: Rewind) -> None:
    """A pass over empty caches can be rewound too, to one position and to none."""
    caches = target.make_cache()
    window = Window(target, caches, strategy)
    window.run(mx.array([PROMPT]))
    window.rewind(1)
    one = named_state(target.layers, caches, "layers")
    expected = target.make_cache()
    forward(target, mx.array([PROMPT[:1]]), expected)
    require_equal(one, named_state(target.layers, expected, "layers"), what="one position")
    window.rewind(0)
    none = named_state(target.layers, caches, "layers")
    empty = named_state(target.layers, target.make_cache(), "layers")
    require_equal(none, empty, what="empty caches")


@pytest.mark.parametrize("strategy", list(Rewind))
@pytest.mark.parametrize("target", [*REFERENCE, *MLX_LM], indirect=True)
def test_the_pass_itself(target: Target, strategy: Rewind) -> None:
    """What a strategy remembers changes no bit of the pass's own result."""
    caches, expected = target.make_cache(), target.make_cache()
    hidden = Window(target, caches, strategy).run(mx.array([PROMPT]))
    assert bits_equal(hidden, forward(target, mx.array([PROMPT]), expected)) is None
    found = named_state(target.layers, caches, "layers")
    require_equal(found, named_state(target.layers, expected, "layers"), what="a plain pass")


@pytest.mark.parametrize("keep", [-1, WIDTH + 1])
@pytest.mark.parametrize("target", ["flash-next"], indirect=True)
def test_positions_that_were_not_there(target: Target, keep: int) -> None:
    """A window refuses to be rewound to a length it never had, and stays as it is."""
    caches = target.make_cache()
    window = Window(target, caches, Rewind.TAPE)
    window.run(TOKENS)
    before = named_state(target.layers, caches, "layers")
    with pytest.raises(RewindError, match=f"cannot rewind to {keep} positions: .* holds {WIDTH}"):
        window.rewind(keep)
    after = named_state(target.layers, caches, "layers")
    require_equal(after, before, what="the caches before the refusal")
