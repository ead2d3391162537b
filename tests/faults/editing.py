"""Editing the decoder's functions: by their text, or by wrapping the undo of a layer."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import pytest

from mtp_decoder import window
from mtp_decoder.rewind import Undo


class EditError(Exception):
    """The text to be replaced is not there once: the decoder has changed under a fault."""


def edit(
    patch: pytest.MonkeyPatch, function: Callable[..., Any], *changes: tuple[str, str]
) -> None:
    """Replace pieces of a function's source, wherever the function is already referred to.

    Args:
        patch: undoes it.
        function: a plain function or method, without closure.
        changes: (old, new); each old must occur exactly once.

    Raises:
        EditError: it does not, or the function has a closure.
    """
    plain = cast("FunctionType", function)
    source = textwrap.dedent(inspect.getsource(plain))
    for old, new in changes:
        if source.count(old) != 1:
            raise EditError(
                f"{plain.__module__}.{plain.__qualname__} has {old!r} {source.count(old)} times"
            )
        source = source.replace(old, new)
    if plain.__code__.co_freevars:
        raise EditError(f"{plain.__module__}.{plain.__qualname__} has a closure")
    made: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", "<fault>", "exec")
    exec(code, dict(plain.__globals__), made)  # the decoder's own text, one piece of it changed
    patch.setattr(plain, "__code__", made[plain.__name__].__code__)


Rewind = Callable[[int], None]


def wrap_undos(
    patch: pytest.MonkeyPatch, wrap: Callable[[int, Any, Rewind], Rewind | None]
) -> None:
    """Give undos of a verify pass another `rewind`.

    Args:
        patch: undoes it.
        wrap: from (index of the layer, its undo, the undo's rewind) to a faulty rewind, or None
            to leave it.
    """
    make_undo = window.make_undo

    def faulty(*args: Any) -> Undo:
        undo: Any = make_undo(*args)
        wrapped = wrap(args[0], undo, undo.rewind)
        if wrapped is not None:
            undo.rewind = wrapped
        return undo

    patch.setattr(window, "make_undo", faulty)
