"""Failures that the harness injects."""

import mlx.core as mx
import pytest

from mtp_conformance.injecting import InjectedFailure, Injector


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


def test_an_evaluation_that_is_not_reached() -> None:
    """Nothing raised, and everything is as it was, if there are fewer evaluations."""
    plain, injector = mx.eval, Injector()
    injector.arm(3)
    mx.eval(mx.ones(3))
    assert (injector.disarm(), mx.eval) == (False, plain)


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
