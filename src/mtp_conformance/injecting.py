"""Failures that the harness injects into a runtime: one evaluation of mlx that raises.

Every runtime on mlx evaluates, so this asks nothing of an adapter. In process the harness arms it;
over stdio `serve` does, on request. An evaluation is a call of `mx.eval` or `mx.async_eval`, of a
function that writes arrays to a file, or of a method that reads an array as Python values, such as
`item`, whether or not that array is evaluated already. What the harness itself evaluates is not
counted. Not reached is a read of an array's memory (`memoryview(array)`, most of NumPy's), which no
Python code can stand before. Needs the standard library and mlx alone.
"""

from __future__ import annotations

from inspect import currentframe
from types import FrameType
from typing import Any

import mlx.core as mx

_FUNCTIONS = (
    *("eval", "async_eval"),
    *("save", "savez", "savez_compressed", "save_safetensors", "save_gguf"),
)
_METHODS = (
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__"),
    *("__array__", "__dlpack__"),
)
_EVALUATIONS: tuple[tuple[Any, str], ...] = (
    *((mx, name) for name in _FUNCTIONS),
    *((mx.array, name) for name in _METHODS),
)
_HARNESS, _ADAPTERS = "mtp_conformance.", "mtp_conformance.adapters."


class InjectedFailure(RuntimeError):
    """What the armed evaluation raises, in place of evaluating."""


class Injector:
    """Lets one evaluation raise."""

    def __init__(self) -> None:
        self._plain: list[tuple[Any, str, Any]] = []
        self._left = 0
        self._raised = False

    def arm(self, number: int) -> None:
        """Let the evaluation of that number from now on raise, counting from 1."""
        self.disarm()
        self._left, self._raised = number, False
        for owner, name in _EVALUATIONS:
            plain = vars(owner).get(name)  # the oldest mlx that a runtime pins may lack one
            if plain is not None:
                self._plain.append((owner, name, plain))
                setattr(owner, name, self._counted(plain))

    def disarm(self) -> bool:
        """Let every evaluation be as it was; returns whether the armed one raised."""
        for owner, name, plain in self._plain:
            setattr(owner, name, plain)
        self._plain.clear()
        return self._raised

    def _counted(self, plain: Any) -> Any:
        def evaluate(*arrays: Any, **named: Any) -> Any:
            here = currentframe()
            if not _is_of_the_harness(None if here is None else here.f_back):
                self._left -= 1
                if self._left == 0:
                    self._raised = True
                    raise InjectedFailure("the harness lets this evaluation fail")
            return plain(*arrays, **named)

        return evaluate


def _is_of_the_harness(caller: FrameType | None) -> bool:
    """Whether the code that evaluates judges runtimes; an adapter's is the runtime's."""
    name = "" if caller is None else str(caller.f_globals.get("__name__", ""))
    return name.startswith(_HARNESS) and not name.startswith(_ADAPTERS)
