"""Cases: ids belong to one function each."""

from collections.abc import Callable

import pytest

from mtp_conformance.case import case, registered


def _first() -> None:
    """One thing holds."""


def _second() -> None:
    """Another thing holds."""


def _declare(function: Callable[[], None]) -> Callable[[], None]:
    return case("a.b.c", clause="c", oracle="A", witness="w", since="0.1.0")(function)


def test_an_id_of_another_function_is_refused() -> None:
    """A second function cannot take an id."""
    _declare(_first)
    with pytest.raises(
        ValueError, match=r"'a\.b\.c' belongs to _first .* _second .* needs another"
    ):
        _declare(_second)


def test_a_file_may_be_imported_again() -> None:
    """The same function of the same file declares its case again, and the registry holds one."""
    _declare(_first)
    assert _declare(_first) is _first
    assert [case.id for case in registered()] == ["a.b.c"]
