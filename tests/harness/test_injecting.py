"""Failures that the harness injects."""

import contextlib
import operator
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance import answers, injecting
from mtp_conformance.injecting import InjectedFailure, Injector

READS: dict[str, Callable[[mx.array], Any]] = {
    "item": lambda array: array.item(),
    "tolist": lambda array: array.tolist(),
    "bool": bool,
    "if": lambda array: 1 if array else 0,
    "int": int,
    "float": float,
    "index": operator.index,
    "dlpack": lambda array: type(array.__dlpack__()),
    "async": lambda array: mx.async_eval(array),  # noqa: PLW0108  (looked up once it is armed)
}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_armed_evaluation_raises(number: int) -> None:
    """The evaluation of that number raises, those before and after it evaluate."""
    plain, injector = (mx.eval, mx.async_eval), Injector()
    injector.arm(number)
    raised: list[int] = []
    for call in range(1, 5):
        try:
            (mx.eval if call % 2 else mx.async_eval)(mx.ones(3) + 1)
        except InjectedFailure:
            raised.append(call)
    assert (injector.disarm(), raised) == (True, [number])
    assert (mx.eval, mx.async_eval) == plain


@pytest.mark.parametrize("name", READS)
def test_a_read_is_an_evaluation(name: str) -> None:
    """An array that is read as a Python value is evaluated, and that fails as a call does."""
    read, injector, array = READS[name], Injector(), mx.array(2) + 1
    plain = read(array)
    injector.arm(2)
    assert read(array) == plain
    with pytest.raises(InjectedFailure, match="the harness lets this evaluation fail"):
        read(array)
    assert read(array) == plain
    assert injector.disarm()
    assert read(array) == plain


def test_a_file_is_an_evaluation(tmp_path: Path) -> None:
    """What writes arrays to a file evaluates them."""
    injector = Injector()
    injector.arm(1)
    with pytest.raises(InjectedFailure):
        mx.save_safetensors(str(tmp_path / "a"), {"a": mx.ones(3) + 1})
    assert injector.disarm()
    assert not list(tmp_path.iterdir())


def test_this_mlx_has_all_of_them() -> None:
    """Nothing that is listed is passed over for want of such a name."""
    missing = [name for owner, name in injecting._EVALUATIONS if name not in vars(owner)]  # pyright: ignore[reportPrivateUsage]
    assert missing == []


def test_what_the_harness_evaluates() -> None:
    """A look at an answer is no evaluation of the runtime's."""
    injector, logits = Injector(), mx.array([[0.0, 1.0]])
    injector.arm(1)
    answers.logits(logits, 1, None, (1,))
    with pytest.raises(InjectedFailure):
        logits.argmax().item()
    assert injector.disarm()


@pytest.mark.parametrize(
    ("module", "counted"),
    [
        ("mtp_conformance.adapters.builtin", True),
        ("mtp_conformance_of_somebody", True),
        ("mlx_lm.generate", True),
        ("mtp_conformance.stdio", False),
        ("mtp_conformance.golden.making", False),
    ],
)
def test_whose_evaluations_are_counted(module: str, counted: bool) -> None:
    """An adapter's and a library's evaluations are the runtime's, the harness's own are not."""
    injector, array = Injector(), mx.array(2)
    read = FunctionType(_read.__code__, {"__name__": module})
    injector.arm(1)
    with contextlib.suppress(InjectedFailure):
        read(array)
    assert injector.disarm() == counted


def _read(array: mx.array) -> object:
    return array.item()


def test_an_evaluation_that_is_not_reached() -> None:
    """Nothing raised, and everything is as it was, if there are fewer evaluations."""
    plain, injector = (mx.eval, mx.array.item), Injector()
    injector.arm(3)
    mx.eval(mx.ones(3))
    mx.ones(1).item()
    assert (injector.disarm(), (mx.eval, mx.array.item)) == (False, plain)


def test_armed_again() -> None:
    """Arming anew counts anew, and wraps nothing twice."""
    plain, injector = mx.eval, Injector()
    injector.arm(2)
    mx.eval(mx.ones(3))
    injector.arm(2)
    mx.eval(mx.ones(3))
    with pytest.raises(InjectedFailure, match="the harness lets this evaluation fail"):
        mx.eval(mx.ones(3))
    assert (injector.disarm(), mx.eval) == (True, plain)
