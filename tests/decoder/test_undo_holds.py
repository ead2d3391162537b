"""Rewind of recurrent state: what each strategy says it keeps is what it keeps."""

from collections.abc import Iterable
from typing import Any, cast

import mlx.core as mx
import pytest

from mtp_decoder import Rewind
from mtp_decoder.rewind import make_undo
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT

TOKENS = mx.array([PROMPT[:5]])
SHARED = {"layer", "cache", "before", "tokens"}  # kept alive anyway, and the tokens


def _held(value: Any) -> int:
    """Bytes of every array in a value, whatever it is nested in."""
    if isinstance(value, mx.array):
        return value.nbytes
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).values()
    if isinstance(value, list | tuple) or not hasattr(value, "__dict__"):
        parts = cast("Iterable[Any]", value) if hasattr(value, "__iter__") else ()
        return sum(_held(part) for part in parts if not isinstance(value, str))
    return _held(vars(value))


@pytest.mark.parametrize("strategy", list(Rewind))
@pytest.mark.parametrize("name", ["gdn", "flash-next"])
def test_nothing_else(zoo: Zoo, name: str, strategy: Rewind) -> None:
    """An undo holds the arrays it counts and no others, before a rewind and after one."""
    target, _ = zoo(name)
    cache = target.make_cache()[0]
    undo = make_undo(0, target.layers[0], cache, strategy)
    undo.run(target.embed(TOKENS), TOKENS)
    undo.rewind(0)
    held = {attribute: value for attribute, value in vars(undo).items() if attribute not in SHARED}
    assert _held(held) == undo.nbytes()


@pytest.mark.parametrize("strategy", list(Rewind))
def test_how_it_comes_back(zoo: Zoo, monkeypatch: pytest.MonkeyPatch, strategy: Rewind) -> None:
    """A strategy advances the state the way it is named after, and only snapshots keep states."""
    target, _ = zoo("gdn")
    layer: Any = target.layers[0]
    called = list[str]()

    def watch(name: str) -> None:
        original = getattr(layer, name)

        def call(*arguments: Any) -> Any:
            if name != "record":
                called.append(name)
            elif len(arguments) == 4 and arguments[3] is not None:
                called.append("states")
            return original(*arguments)

        monkeypatch.setattr(layer, name, call)

    for name in ("record", "advance", "advance_tape"):
        watch(name)
    undo = make_undo(0, layer, target.make_cache()[0], strategy)
    undo.run(target.embed(TOKENS), TOKENS)
    undo.rewind(0 if strategy is Rewind.REPLAY else 2)
    expected = {"tape": ["advance_tape"], "rerun": ["advance"], "snapshot": ["states"]}
    assert called == expected.get(strategy.value, [])
