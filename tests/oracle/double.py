# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# (PyTorch is in the oracle's environment alone)
"""Float64 throughout: PyTorch code whose casts to float32 are written into it.

Models cast to float32 inside norms, recurrences, routers and rotary embeddings, so that a
float64 model is no better than a float32 one. Under `double` every such cast goes to float64,
and a tensor that comes out in a smaller type is an error: nothing slips through unnoticed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = {torch.float32, torch.float16, torch.bfloat16}


class NarrowError(TypeError):
    """A computation under `double` gave a float that is no float64."""


class _Widening(TorchFunctionMode):
    """Asks for float64 wherever float32 is asked for."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wide = [_widened(value) for value in args]
        out = func(*wide, **{name: _widened(value) for name, value in (kwargs or {}).items()})
        if isinstance(out, torch.Tensor) and out.dtype in _NARROW:
            name = getattr(func, "__name__", str(func))
            raise NarrowError(f"{name} gave {out.dtype} in a computation meant to be float64")
        return out


def _widened(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


@contextmanager
def double() -> Generator[None]:
    """Compute in float64 while this lasts.

    Raises:
        NarrowError: something was computed in less.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(before)
