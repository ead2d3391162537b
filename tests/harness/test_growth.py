"""A state that is not live, or not in order, is told by what one more token does to it."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_conformance import Oracles
from mtp_conformance.adapters.builtin import make_runtime, zoo_materials
from mtp_conformance.group import GroupKey
from mtp_conformance.growth import growth_faults

State = dict[str, mx.array]
PROMPT = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[State, State]]:
    """Two states of a model, one token apart."""
    oracles = Oracles(make_runtime(), zoo_materials(tmp_path_factory.mktemp("zoo")))

    def states(model: str) -> tuple[State, State]:
        group = oracles.fresh_group(GroupKey(model, "float32", PROMPT))
        return group.plain_state(0), group.plain_state(1)

    return states


@pytest.mark.parametrize("model", ["attn", "gdn", "window", "ple", "qsa", "flash-next"])
def test_live_state(model: str, pair: Callable[[str], tuple[State, State]]) -> None:
    """The builtin decoder's state grows as it should, of every mechanism."""
    assert growth_faults(*pair(model), PROMPT + 1) == []


SPOILED: dict[str, tuple[str, str, Callable[[mx.array], mx.array], str]] = {
    "zeros": ("gdn", "layers.0.recurrent", mx.zeros_like, "is all zeros after a token"),
    "reversed": ("gdn", "layers.2.keys", lambda x: x[:, :, ::-1], "give rows oldest first"),
    "window": ("gdn", "layers.0.conv", lambda x: x[:, ::-1], "with the newest at the end"),
    "count": ("attn", "layers.0.offset", lambda x: x - 1, "is 5 with 6 tokens in the caches"),
    "pooled": ("qsa", "layers.1.pooled", lambda x: x * 2, "give rows oldest first"),
}


@pytest.mark.parametrize(("model", "name", "spoil", "said"), SPOILED.values(), ids=SPOILED)
def test_spoiled_state(
    model: str,
    name: str,
    spoil: Callable[[mx.array], mx.array],
    said: str,
    pair: Callable[[str], tuple[State, State]],
) -> None:
    """The array is named, and how it ought to be."""
    before, after = pair(model)
    faults = growth_faults(before, {**after, name: spoil(after[name])}, PROMPT + 1)
    assert len(faults) == 1
    assert faults[0].startswith(name)
    assert said in faults[0]


def test_frozen_recurrence(pair: Callable[[str], tuple[State, State]]) -> None:
    """A recurrence that a token does not change is no live state."""
    before, _ = pair("gdn")
    faults = growth_faults(before, before, PROMPT)
    assert "layers.0.recurrent is unchanged by a token" in faults
