"""Failures that the harness injects into a runtime: one evaluation of mlx that raises.

Every runtime on mlx evaluates, so this asks nothing of an adapter. In process the harness arms it;
over stdio `serve` does, on request. Evaluations that mlx makes by itself, when a value is read, are
not reached. Needs the standard library and mlx alone.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

_EVALUATIONS = ("eval", "async_eval")


class InjectedFailure(RuntimeError):
    """What the armed evaluation raises, in place of evaluating."""


class Injector:
    """Lets one call of `mx.eval` or `mx.async_eval` raise."""

    def __init__(self) -> None:
        self._plain: dict[str, Any] = {}
        self._left = 0
        self._raised = False

    def arm(self, number: int) -> None:
        """Let the call of that number from now on raise, counting from 1."""
        self.disarm()
        self._left, self._raised = number, False
        for name in _EVALUATIONS:
            self._plain[name] = getattr(mx, name)
            setattr(mx, name, self._counted(self._plain[name]))

    def disarm(self) -> bool:
        """Let every call be as it was; returns whether the armed one raised."""
        for name, plain in self._plain.items():
            setattr(mx, name, plain)
        self._plain.clear()
        return self._raised

    def _counted(self, plain: Any) -> Any:
        def evaluate(*arrays: Any) -> None:
            self._left -= 1
            if self._left == 0:
                self._raised = True
                raise InjectedFailure("the harness lets this evaluation fail")
            plain(*arrays)

        return evaluate
