"""Cases: what gives a test function its identity."""

import pytest

from mtp_conformance.case import Level, case, registration_of


def _declare(id: str = "rewind.recurrent.reject-all", level: str = "must") -> object:
    @case(id, clause="c", level=level, oracle="A", witness="w", faults=("R1",), since="0.1.0")
    def test_something() -> None:
        """A rejected draft leaves no trace.

        More about it.
        """

    return test_something


def test_a_case_carries_its_metadata() -> None:
    """The summary is the docstring's first line, the area the id's first part."""
    registration = registration_of(_declare())
    assert registration is not None
    assert registration.case.summary == "A rejected draft leaves no trace."
    assert registration.case.area == "rewind"
    assert registration.case.level is Level.MUST
    assert registration.case.faults == ("R1",)


@pytest.mark.parametrize(
    "id", ["rewind", "rewind.recurrent", "a.b.c.d", "a.B.c", "a.b.c_d", "a..c", "a.b.-c", "a.b.c\n"]
)
def test_an_id_of_another_form_is_refused(id: str) -> None:
    """An id is three dotted parts in lower case with hyphens."""
    with pytest.raises(ValueError, match=r"is not area\.property\.slug"):
        _declare(id)


def test_an_unknown_level_is_refused() -> None:
    """A level is must or should."""
    with pytest.raises(ValueError, match="may"):
        _declare(level="may")


def test_a_case_without_docstring_is_refused() -> None:
    """A case says in its docstring what it requires."""

    def silent() -> None:
        pass

    with pytest.raises(ValueError, match="needs a docstring"):
        case("a.b.c", clause="c", oracle="A", witness="w", since="0.1.0")(silent)


def test_a_plain_function_is_no_case() -> None:
    """A function without the decorator has no registration."""
    assert registration_of(test_a_plain_function_is_no_case) is None
