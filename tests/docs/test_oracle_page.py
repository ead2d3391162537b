"""The page on the oracle is what is stored says."""

from tests.oracle.page import PAGE, kind_of, text
from tests.oracle.stored import read, read_manifest


def test_oracle_page_is_current() -> None:
    """`docs/oracle.md` is what the manifest gives today."""
    assert PAGE.read_text() == text(read_manifest())


def test_every_quantity_is_in_a_group() -> None:
    """No quantity is left out of the page's table."""
    for model in read_manifest()["models"]:
        assert all(kind_of(name) for name in read(model)[1])
